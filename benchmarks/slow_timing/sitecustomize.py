"""Changes the step times of a mocker whose process has this folder on its PYTHONPATH.

`calibrate.py` sets HIDDEN_PREFILL_SPEED and HIDDEN_STEP_TIME. The factors change the latency of
each operation of the compiled performance model, not the ratios that `simulate --calibration` sets.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

FACTORS = {
    "context_ops": 1 / float(os.environ.get("HIDDEN_PREFILL_SPEED", "1")),
    "generation_ops": float(os.environ.get("HIDDEN_STEP_TIME", "1")),
}


def install() -> None:
    from aisimulate_core.sdk import engine  # type: ignore[import-not-found]

    build = engine.build_engine_spec_json

    def build_changed(*arguments: Any, **options: Any) -> str:
        spec = json.loads(build(*arguments, **options))
        for name, factor in FACTORS.items():
            for operation in spec[name]:
                change(operation, factor)
        print(f"hidden factors: {FACTORS}", file=sys.stderr, flush=True)
        return json.dumps(spec)

    engine.build_engine_spec_json = build_changed


def change(operation: dict[str, Any], factor: float) -> None:
    """An operation is a mapping from its kind to its fields."""
    (fields,) = operation.values()
    fields["scale_factor"] *= factor


if "dynamo.mocker" in " ".join(sys.orig_argv):
    install()
