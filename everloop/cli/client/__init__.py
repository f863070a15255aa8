"""Commands that talk to agents as any client does: by A2A, from any machine."""
