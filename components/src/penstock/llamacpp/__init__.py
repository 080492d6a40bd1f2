"""A Dynamo worker for llama.cpp: real models on a laptop, from a GGUF file.

`python -m penstock.llamacpp` runs in the environment `llamacpp`, which adds `xllamacpp` (llama.cpp's
server in the process) to the packages of penstock itself.
"""
