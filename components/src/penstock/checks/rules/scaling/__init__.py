"""Updates and scaling."""
