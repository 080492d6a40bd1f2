"""Rules about sequence lengths."""
