"""The live view of a release on a cluster."""
