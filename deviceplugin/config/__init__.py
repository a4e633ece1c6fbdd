"""The config file: what it may say, reading it with every error at once, and precedence flag > environment > file."""
