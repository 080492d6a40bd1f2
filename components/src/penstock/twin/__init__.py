"""A graph on mockers with the predicted times of its hardware, beside the replay of it."""
