"""`everloop doctor`: what keeps an Everloop from working, and what to do."""
