"""CDI specifications: what is in them, and the files."""
