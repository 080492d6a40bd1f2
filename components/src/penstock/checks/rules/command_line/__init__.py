"""Rules about command-line flags and environment variables."""
