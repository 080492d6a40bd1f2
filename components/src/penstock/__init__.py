"""penstock: deploy large language models on NVIDIA Dynamo from one graph YAML."""

__version__ = "0.2.0"

__all__ = ["__version__"]
