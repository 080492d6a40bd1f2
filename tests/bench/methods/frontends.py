"""Metrics of a Dynamo 1.6.1 frontend, written by a test."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

BOUNDS = ("0", "0.022", "0.047", "0.1", "+Inf")
MODEL = "Org/Model"


@dataclass(kw_only=True)
class Frontend:
    """One process; `finish` counts a request as the frontend does."""

    process: str = "a1"
    uptime_s: float = 1000.0
    model: str = MODEL
    ttft_s: list[float] = field(default_factory=list)
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    durations: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)

    def finish(self, *, ttft_s: float, duration_s: float, tokens: int) -> None:
        self.ttft_s.append(ttft_s)
        self.durations.append(duration_s)
        self.lengths.append(tokens)
        self.outcomes["success", ""] += 1

    def fail(self, error: str, duration_s: float = 0.1) -> None:
        self.durations.append(duration_s)
        self.outcomes["error", error] += 1

    @property
    def text(self) -> str:
        model_label = f'model="{self.model}"'
        lines = [
            "# TYPE dynamo_frontend_model_ready gauge",
            f"dynamo_frontend_model_ready{{{model_label}}} 1",
            'dynamo_frontend_requests_total{model="unknown_model",status="error",'
            'error_type="not_found"} 99',
        ]
        if self.process:
            label = f'worker_id="{self.process}"'
            lines.append(f"dynamo_component_uptime_seconds{{{label}}} {self.uptime_s}")
        for (status, error), count in self.outcomes.items():
            labels = f'endpoint="completions",error_type="{error}",{model_label},status="{status}"'
            lines.append(f"dynamo_frontend_requests_total{{{labels}}} {count}")
        for bound in BOUNDS:
            count = sum(ttft_ <= float(bound) for ttft_ in self.ttft_s)
            name = "dynamo_frontend_time_to_first_token_seconds_bucket"
            lines.append(f'{name}{{{model_label},le="{bound}"}} {count}')
        sums = {"request_duration_seconds": self.durations, "output_sequence_tokens": self.lengths}
        for name, values in sums.items():
            lines.append(f"dynamo_frontend_{name}_sum{{{model_label}}} {sum(values)}")
            lines.append(f"dynamo_frontend_{name}_count{{{model_label}}} {len(values)}")
        return "\n".join([*lines, "# EOF", ""])
