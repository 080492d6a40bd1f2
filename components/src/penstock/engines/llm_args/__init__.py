"""TensorRT-LLM's own configuration file, typed; `judge` says what the engine would refuse."""
