"""The report of `penstock plan --router`, its JSON, and the comment of the graph that it writes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from statistics import median

from penstock.reports.model import Notes, Part, Report, Section, State, Table, Verdict
from penstock.simulate.documents import as_rows
from penstock.simulate.report import SIMULATED, arrival_of, never_line, notes
from penstock.text.numbers import count_of
from penstock.tune.settings import DYNAMO_DEFAULT, shown
from penstock.tune.tuning import (
    HINTED,
    LATENCIES,
    MARGINS,
    NEEDED,
    QUEUED,
    SLO_MARGIN,
    Confirmation,
    Trial,
    Tuning,
    exceeded,
    queue_share,
    ratio_of,
    share_gain,
    values,
)

SCHEMA_VERSION = 2  # raised if a key changes its meaning or is removed
BEST = 5  # rows of the first table, besides the fixed ones
COLUMNS = (
    "scale / credit / queue / policy",
    "TTFT p50/p90/p99 (ms)",
    "ITL p90 (ms)",
    "prefix hits",
    "SLO met",
    "ratio",
)
POINTS = f"more than {SLO_MARGIN * 100:g} percentage point"
METRIC = (
    "order: by the share of requests within the SLO, then by the ratio; ratio: TTFT with the "
    "graph's settings divided by TTFT with the new ones, geometric mean over p50, p90 and p99 "
    f"(above 1: better); rejected: the share within the SLO {POINTS} lower, or, unless it is "
    f"{POINTS} higher, "
    + " or ".join(f"{what} more than {margin:.0%} higher" for what, margin in MARGINS.values())
)
LEGEND = (
    "scale: prefill_load_scale; credit: overlap_score_credit; queue: queue_threshold; "
    "policy: queue_policy"
)


def report_of(tuning: Tuning) -> Report:
    choice, confirmation = tuning.parts.choice, tuning.confirmation
    best = f"choice ({tuning.parts.choice_name}), the best of {len(tuning.trials)} combinations:"
    parts: list[Part] = [METRIC, best, _table(tuning.base, _best_trials(tuning), has_bounds=False)]
    if confirmation is not None:
        trials = _compared(confirmation)
        parts += [
            f"confirmation ({tuning.parts.confirmation_name}):",
            _table(confirmation.base, trials, has_bounds=True),
        ]
    requests = count_of(tuning.base.row.requests, "measured request")
    replays = f"{count_of(tuning.replays, 'replay')} of {requests} or more"
    possible = f"prefix-cache hit rate of one unlimited cache: about {tuning.possible_hits:.1%}"
    remarks = [tuning.hint] if tuning.hint and not tuning.indifference else []
    about = [*remarks, possible, replays, *notes([tuning.base.row], [None])]
    about.append(never_line(choice.workload.workload))
    state = State.MET if tuning.is_changed else State.NONE
    return Report(
        kind="Router settings",
        title=f"{tuning.deployment.name}, {choice.workload.name}: {arrival_of(choice.workload)}",
        subtitle=SIMULATED,
        verdicts=[Verdict(state, f"recommended: {recommendation(tuning)}")],
        sections=[
            Section("Settings", [*parts, LEGEND]),
            Section("Notes", [Notes(about)]),
        ],
    )


def _compared(confirmation: Confirmation) -> list[Trial]:
    return [confirmation.base, *confirmation.finalists, *confirmation.others]


def _best_trials(tuning: Tuning) -> list[Trial]:
    """The best, the graph's settings and Dynamo's default; the JSON has all."""
    fixed = (tuning.base.settings, DYNAMO_DEFAULT)
    best = tuning.trials[:BEST]
    return [trial for trial in tuning.trials if trial in best or trial.settings in fixed]


def recommendation(tuning: Tuning) -> str:
    """One line: the settings, and why."""
    if tuning.is_changed:
        assert tuning.confirmation is not None
        text = f"{tuning.recommended}: {evidence(tuning.confirmation)}"
        ties = "; ".join(str(trial.settings) for trial in tuning.confirmation.tied)
        return f"{text}; as good: {ties}" if ties else text
    return f"keep {_kept(tuning)}: {_why_kept(tuning)}"


def evidence(confirmation: Confirmation) -> str:
    """`TTFT p50/p90/p99 240/829/2,300 → 187/609/1,900 ms, ratio 1.36 (95% lower bound 1.31) on
    traffic …`."""
    before, after = map(_latencies, (confirmation.base, confirmation.chosen))
    ratio = confirmation.ratio
    bound = f" (95% lower bound {ratio.low:.2f})" if ratio.low is not None else ""
    change = f"TTFT p50/p90/p99 {before} → {after} ms, ratio {ratio.mean:.2f}{bound}"
    shares = [trial.share for trial in (confirmation.base, confirmation.chosen)]
    if share_gain(confirmation.base, confirmation.chosen):
        change += f", {shares[0]:.1%} → {shares[1]:.1%} of requests within the SLO"
    return f"{change} on traffic that was not used to choose them"


def _latencies(trial: Trial) -> str:
    return "/".join(f"{median(values(trial.row, name)):.0f}" for name in LATENCIES)


def _kept(tuning: Tuning) -> str:
    settings = tuning.base.settings
    return "Dynamo's default" if settings == DYNAMO_DEFAULT else f"the graph's {settings}"


def _why_kept(tuning: Tuning) -> str:
    confirmation = tuning.confirmation
    if confirmation is None:
        text = "no other settings were better on the choice part"
    elif confirmation.exceeded:
        text = f"with {confirmation.chosen.settings}, on the confirmation part, "
        text += " and ".join(confirmation.exceeded)
    else:
        low = confirmation.ratio.low or 0.0
        text = f"{confirmation.chosen.settings} are not better on the confirmation part by more "
        text += f"than the noise: lower bound of the ratio {low:.2f}, needed {NEEDED:.2f}"
    if tuning.indifference:
        text += f"; {tuning.indifference}, so these settings make little difference"
    return text


def _table(base: Trial, trials: Sequence[Trial], *, has_bounds: bool) -> Table:
    return Table(COLUMNS, [_cells(base, trial, has_bounds=has_bounds) for trial in trials])


def _cells(base: Trial, trial: Trial, *, has_bounds: bool) -> list[str]:
    def figure(name: str, form: str = ".0f") -> str:
        measured = values(trial.row, name)
        return f"{median(measured):{form}}" if measured else "-"

    goodput = trial.row.goodput
    return [
        _name(base, trial),
        "/".join(map(figure, LATENCIES)),
        figure("itl_p90_ms", ".1f"),
        figure("prefix_hit_rate", ".1%"),
        "-" if goodput is None else f"{goodput:.1%}",
        _ratio_cell(base, trial, has_bound=has_bounds),
    ]


def _name(base: Trial, trial: Trial) -> str:
    settings = trial.settings
    text = " / ".join(shown(value) for value in settings.keys.values())
    marks = ["Dynamo's default"] if settings == DYNAMO_DEFAULT else []
    marks += ["the graph's"] if settings == base.settings != DYNAMO_DEFAULT else []
    return f"{text} ({', '.join(marks)})" if marks else text


def _ratio_cell(base: Trial, trial: Trial, *, has_bound: bool) -> str:
    if trial.settings == base.settings:
        return "1"
    ratio = ratio_of(base, trial)
    bound = f" (≥ {ratio.low:.2f})" if has_bound and ratio.low is not None else ""
    return f"{ratio.mean:.2f}{bound}{' rejected' if exceeded(base, trial) else ''}"


def comment(tuning: Tuning, command: str) -> list[str]:
    """The lines above the settings in the graph, without the `#`."""
    assert tuning.confirmation is not None
    workload = tuning.parts.confirmation.workload
    return [
        command,
        f"{workload.name} ({arrival_of(workload)}), {tuning.parts.confirmation_name}, simulated:",
        evidence(tuning.confirmation),
    ]


def as_json(tuning: Tuning, graph: str | None) -> str:
    confirmation = tuning.confirmation
    workload = tuning.parts.choice.workload
    confirmed = None
    if confirmation is not None:
        confirmed = {
            "part": tuning.parts.confirmation_name,
            "settings": [_as_json(confirmation.base, t) for t in _compared(confirmation)],
            "exceeded": confirmation.exceeded,
        }
    return json.dumps(
        {
            "schema_version": SCHEMA_VERSION,
            "workload": workload.workload.model_dump(exclude_none=True),
            "metrics": list(LATENCIES),
            "margins": {
                **{name: margin for name, (_, margin) in MARGINS.items()},
                "goodput": SLO_MARGIN,
                "needed_ratio": NEEDED,
                "queue_share": QUEUED,
            },
            "choice": {
                "part": tuning.parts.choice_name,
                "settings": [_as_json(tuning.base, trial) for trial in tuning.trials],
            },
            "confirmation": confirmed,
            "recommended": {
                **tuning.recommended.keys,
                "is_changed": tuning.is_changed,
                "reason": recommendation(tuning),
            },
            "queue_share": queue_share(tuning.base.row),
            "possible_prefix_hits": tuning.possible_hits,
            "hint": {"settings": HINTED.keys, "reason": tuning.hint} if tuning.hint else None,
            "replays": tuning.replays,
            "graph": graph,
        },
        indent=2,
    )


def _as_json(base: Trial, trial: Trial) -> dict[str, object]:
    (row,) = as_rows([trial.row])
    return {
        "router": trial.settings.keys,
        "ratio": asdict(ratio_of(base, trial)),
        "exceeded": exceeded(base, trial),
        **row,
    }
