"""Data files of the simulation."""
