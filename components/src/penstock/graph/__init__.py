"""The graph YAML: its model, its loader, and the files generated from the model."""
