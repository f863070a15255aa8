"""Commands for authors of agents: create a project, extend it, run it during changes, diagnose it."""
