"""Rules about an engine's configuration file."""
