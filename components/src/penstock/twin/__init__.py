"""A graph on mockers with the predicted step times of its hardware, compared with its replay."""
