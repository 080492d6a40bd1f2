"""Rules about failures that users reported."""
