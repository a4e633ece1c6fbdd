"""The commands. Each module is one command; nothing here decides anything about GPUs."""
