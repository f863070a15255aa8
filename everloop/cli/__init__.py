"""The command `everloop`: reads command lines, and says what came of them. What it does is done elsewhere."""
