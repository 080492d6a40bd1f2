"""Times of engine steps from AISimulate's measured kernels, in the environment `sim`.

Reads a list of {config, steps} as JSON, and writes for each a list of milliseconds, or {error}.
Imports nothing of penstock, which that environment does not have. `steps.py` starts it.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def main() -> None:
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print goes to the standard error
    models: list[Any] = []  # measurements are freed with the last model that uses them
    times = [_times(query["config"], query["steps"], models) for query in json.load(sys.stdin)]
    print(json.dumps(times), file=output)


def _times(config: dict[str, Any], steps: list[dict[str, int]], models: list[Any]) -> Any:
    import aisimulate_core  # type: ignore[import-not-found]

    try:
        model = aisimulate_core.RustForwardPassPerfModel.best_available(json.dumps(config))
        models.append(model)
        requests = (json.dumps({"scheduled_requests": step}) for step in steps)
        return [model.estimate_forward_pass_time_ms(step) for step in requests]
    except Exception as error:  # noqa: BLE001  the parent process reports it
        return {"error": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    main()
