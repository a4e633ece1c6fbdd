"""The files that tell container runtimes what our CDI names mean."""
