"""Writes the config and the tokenizer of a GGUF file as a folder, which Dynamo's frontend needs."""

from penstock.gguf.folder import folder_of, write_folder

__all__ = ["folder_of", "write_folder"]
