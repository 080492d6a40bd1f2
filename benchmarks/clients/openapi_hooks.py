"""Hooks of schemathesis (SCHEMATHESIS_HOOKS): generated requests name the served model.

Otherwise nearly every request ends at "Model not found". Outputs are kept short.
"""

from __future__ import annotations

import os
from typing import Any

import schemathesis

MODEL = os.environ["PENSTOCK_MODEL"]
LONGEST = 8  # tokens
LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens", "min_tokens")


@schemathesis.hook  # type: ignore[untyped-decorator]
def before_call(_: Any, case: Any, __: Any) -> None:
    body = case.body
    if not isinstance(body, dict):
        return
    if isinstance(body.get("model"), str):
        body["model"] = MODEL
    for name in LIMITS:
        if isinstance(body.get(name), int) and body[name] > LONGEST:
            body[name] = LONGEST
