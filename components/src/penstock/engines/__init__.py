"""The engines that a graph can run: one module each, listed in `table.ENGINES`."""
