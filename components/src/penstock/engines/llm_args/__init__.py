"""TensorRT-LLM's own configuration file, typed; `validate` finds what the engine would reject."""
