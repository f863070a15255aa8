"""`everloop doctor`: find problems of an installation, and propose fixes."""
