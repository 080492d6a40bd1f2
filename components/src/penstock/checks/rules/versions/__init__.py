"""Rules about versions."""
