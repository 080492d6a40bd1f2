"""Tests of the public benchmark methods."""
