"""Times of engine steps from AISimulate's measured kernels, in the environment `sim`.

A list of {config, steps} in, for each a list of milliseconds or {error} out, as JSON. Imports
nothing of penstock, which that environment does not have. Asked by `steps.py`.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries that print do so on the standard error
    models: list[Any] = []  # the measurements go with the last model that holds them
    times = [_times(one["config"], one["steps"], models) for one in json.load(sys.stdin)]
    print(json.dumps(times), file=answers)


def _times(config: dict[str, Any], steps: list[dict[str, int]], models: list[Any]) -> Any:
    import aisimulate_core  # type: ignore[import-not-found]

    try:
        model = aisimulate_core.RustForwardPassPerfModel.best_available(json.dumps(config))
        models.append(model)
        asked = (json.dumps({"scheduled_requests": step}) for step in steps)
        return [model.estimate_forward_pass_time_ms(step) for step in asked]
    except Exception as error:  # noqa: BLE001  whatever it is, whoever asked says it
        return {"error": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    main()
