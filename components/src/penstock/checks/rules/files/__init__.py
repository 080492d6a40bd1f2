"""The files themselves."""
