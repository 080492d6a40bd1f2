"""Published acceptance of draft tokens, by kind of text. `--acceptance NAME` reads this table, and
docs/simulate.md shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MOST_TOKENS = 5  # that a step of the replay can draft


@dataclass(frozen=True)
class Acceptance:
    """How many draft tokens speculative decoding accepts."""

    # That draft token 1, 2, … is accepted, given that those before it were.
    rates: Sequence[float]
    # Whether AISimulate computes the time of the draft model, which Dynamo's mocker cannot.
    prices_draft: bool = True


@dataclass(frozen=True, kw_only=True)
class Published:
    """Acceptance lengths: the mean number of tokens of a step, with the model's own token."""

    text: str
    model: str
    # By number of draft tokens.
    lengths: Mapping[int, float]
    source: str

    @property
    def rates(self) -> tuple[float, ...]:
        """At most `MOST_TOKENS` conditional rates."""
        if 1 in self.lengths:
            return rates_of_lengths([self.lengths[n] for n in sorted(self.lengths)][:MOST_TOKENS])
        ((tokens, length),) = self.lengths.items()
        return (constant_rate(length, tokens),) * MOST_TOKENS


QWEN = "Qwen3-8B with an EAGLE-3 draft of the Speculators library"
SPECULATORS = "https://github.com/vllm-project/speculators/issues/563"
PUBLISHED: Mapping[str, Published] = {
    "chat": Published(
        text="MT-Bench",
        model="gpt-oss-120b with Dogacel/specdrift-gpt-oss-120b-eagle3",
        lengths={3: 2.41},
        source="https://huggingface.co/Dogacel/specdrift-gpt-oss-120b-eagle3",
    ),
    "mixed": Published(
        text="MT-Bench, HumanEval and GSM8K, temperature 1",
        model="gpt-oss-120b with nebius/EAGLE3-gpt-oss-120b",
        lengths={7: 2.65},
        source="https://huggingface.co/nebius/EAGLE3-gpt-oss-120b",
    ),
    "agentic": Published(
        text="set for Mooncake's agentic trace in Dynamo's recipe",
        model="gpt-oss-120b with nvidia/gpt-oss-120b-Eagle3-v3",
        lengths={3: 2.72},
        source="https://github.com/ai-dynamo/dynamo/blob/main/recipes/gpt-oss-120b/README.md",
    ),
    "code": Published(
        text="coding",
        model=QWEN,
        lengths={1: 1.79, 2: 2.35, 3: 2.71, 4: 2.88, 5: 3.00},
        source=SPECULATORS,
    ),
    "math": Published(
        text="math",
        model=QWEN,
        lengths={1: 1.81, 2: 2.42, 3: 2.87, 4: 3.12, 5: 3.30},
        source=SPECULATORS,
    ),
    "summary": Published(
        text="summarization",
        model=QWEN,
        lengths={1: 1.67, 2: 2.05, 3: 2.25, 4: 2.33, 5: 2.37},
        source=SPECULATORS,
    ),
}


def rates_of_lengths(lengths: Sequence[float]) -> tuple[float, ...]:
    """Conditional rates from the acceptance lengths with 1, 2, … draft tokens.

    With n draft tokens the length grows by the probability that the first n are all accepted.
    """
    reached = [after - before for before, after in zip((1.0, *lengths), lengths, strict=False)]
    return tuple(round(p / q, 3) for q, p in zip((1.0, *reached), reached, strict=False))


def constant_rate(length: float, tokens: int) -> float:
    """The rate r of each draft token with 1 + r + r² + … + r^tokens = length."""
    low, high = 0.0, 1.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        total = sum(middle**n for n in range(tokens + 1))
        low, high = (middle, high) if total < length else (low, middle)
    return round(low, 3)
