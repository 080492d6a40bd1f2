"""The graph YAML: its model, the strict loader, and what is generated from the model."""
