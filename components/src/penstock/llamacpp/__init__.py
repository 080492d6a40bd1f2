"""A Dynamo worker for llama.cpp: real models on a laptop, from a GGUF file.

`python -m penstock.llamacpp` runs with the packages of the environment `llamacpp`, which has
`xllamacpp`: llama.cpp's server in the process.
"""
