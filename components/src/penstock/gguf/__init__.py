"""A GGUF file as a model folder: what Dynamo's frontend reads to serve a model of llama.cpp."""

from penstock.gguf.folder import folder_of, write_folder

__all__ = ["folder_of", "write_folder"]
