"""Rules about the network."""
