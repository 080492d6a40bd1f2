"""Rules about responses and output parsers."""
