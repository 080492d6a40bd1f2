"""penstock: one graph YAML becomes a live OpenAI endpoint on NVIDIA Dynamo."""

__version__ = "0.1.0"

__all__ = ["__version__"]
