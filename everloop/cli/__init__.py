"""The command `everloop`: parses command lines and reports results. The work is done in other packages."""
