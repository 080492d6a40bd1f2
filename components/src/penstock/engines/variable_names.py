"""The variables that Dynamo, the engines and huggingface_hub read, in any version that was read."""

from __future__ import annotations

from functools import cache

from penstock.engines.flags import load
from penstock.text.names import nearest

TABLE = "variable_names.json"
# Two letters in a name of 25 letters. Custom variables differ more from existing ones.
SIMILARITY = 0.92


@cache
def _known(prefix: str) -> frozenset[str]:
    """The known variables with a prefix. Those of vLLM and SGLang are in value_history.json too."""
    engines = {"VLLM_": "vllm", "SGLANG_": "sglang"}
    table = load("value_history.json")[engines[prefix]] if prefix in engines else None
    named = table["variables"]["named"] if table else ()
    return frozenset((*load(TABLE)[prefix], *named))


def misspelled(name: str) -> str:
    """The variable that a name resembles which no program reads; empty for any other name."""
    prefix = f"{name.partition('_')[0]}_"
    if prefix not in load(TABLE) or name in _known(prefix):
        return ""
    near = nearest(name, _known(prefix), SIMILARITY)
    # Names that differ only in a digit, such as V1 and V2, are two variables.
    return near if _without_digits(near) != _without_digits(name) else ""


def _without_digits(name: str) -> str:
    return "".join(letter for letter in name if not letter.isdigit())
