"""The rules of `penstock check`: one package a topic, listed in `checks/registry.py`."""
