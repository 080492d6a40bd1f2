"""penstock: deploy large language models on NVIDIA Dynamo from one graph YAML."""

__version__ = "0.3.0.dev0"

__all__ = ["__version__"]
