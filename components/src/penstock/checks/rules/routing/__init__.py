"""Rules about request routing."""
