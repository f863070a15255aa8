"""`everloop demo`: a task that survives the kill of its worker, and the proof that every tool ran once."""
