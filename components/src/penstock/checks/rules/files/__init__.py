"""Rules about the files themselves."""
