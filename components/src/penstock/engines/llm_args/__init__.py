"""TensorRT-LLM's own configuration file, typed; `validate` says what the engine would refuse."""
