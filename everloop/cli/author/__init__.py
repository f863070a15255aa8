"""Commands for authors of agents: begin a project, add to it, run it while it changes, look for problems."""
