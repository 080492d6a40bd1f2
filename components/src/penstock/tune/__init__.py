"""Searches router settings by replays."""
