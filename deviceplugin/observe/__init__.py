"""How the outside sees the process: the status socket and the log."""
