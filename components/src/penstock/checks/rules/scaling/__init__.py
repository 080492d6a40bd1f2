"""Rules about updates and scaling."""
