"""The variables that Dynamo, the engines and huggingface_hub read, in any version that was read."""

from __future__ import annotations

from functools import cache

from penstock.engines.flags import load
from penstock.nearest import nearest

TABLE = "variable_names.json"
# Two letters of a name of 25: a variable of one's own differs more from those that exist.
SIMILARITY = 0.92


@cache
def _known(prefix: str) -> frozenset[str]:
    """Those with a prefix, also of vLLM and SGLang, whose table has the versions too."""
    engines = {"VLLM_": "vllm", "SGLANG_": "sglang"}
    table = load("value_history.json")[engines[prefix]] if prefix in engines else None
    named = table["variables"]["named"] if table else ()
    return frozenset((*load(TABLE)[prefix], *named))


def misspelled(name: str) -> str:
    """The variable that was meant by a name that nothing reads; empty for any other name."""
    prefix = f"{name.partition('_')[0]}_"
    if prefix not in load(TABLE) or name in _known(prefix):
        return ""
    near = nearest(name, _known(prefix), SIMILARITY)
    # V1 and V2 are two variables.
    return near if _without_digits(near) != _without_digits(name) else ""


def _without_digits(name: str) -> str:
    return "".join(letter for letter in name if not letter.isdigit())
