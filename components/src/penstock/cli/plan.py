"""`penstock plan`: recommend a graph for a model, a GPU budget, a workload and an SLO."""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from penstock.cli import arguments, outputs, replaying
from penstock.cli.command_line import add_switch
from penstock.cli.progress import LINE_INTERVAL_S, Progress, add_progress
from penstock.cli.values import add_count, duration_ms, integer_between, share
from penstock.errors import Problem
from penstock.text.commands import invocation

if TYPE_CHECKING:
    from penstock.plan.planning import NoPlan, Plan
    from penstock.plan.request import PlanRequest
    from penstock.plan.trials import Trial
    from penstock.reports.model import Report
    from penstock.workload.load import LoadedWorkload

MIN_REPLAYS = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    # `cli/main.py` runs `plan_router.py` for this option, so that its value never arrives here.
    parser.add_argument(
        "--router",
        metavar="GRAPH",
        type=Path,
        help="find router settings for an existing GRAPH instead of recommending a graph; options: "
        "`penstock plan --router --help`",
    )
    parser.add_argument(
        "--model",
        required=True,
        metavar="NAME",
        help="gpt-oss-120b, gpt-oss-20b, or an id on the model hub",
    )
    arguments.add_gpu(
        parser, "GPU type: h100, h200, b200, b300, gb200 or gb300 (also: --hardware)", required=True
    )
    parser.add_argument(
        "--gpus",
        required=True,
        type=integer_between(1, 10_000),
        metavar="N",
        help="maximum number of GPUs",
    )
    add_count(
        parser,
        "--min-replicas",
        "minimum number of workers in each pool (default: 1; 2 for redundancy)",
        most=64,
        default=1,
    )
    add_switch(
        parser,
        "--n-minus-one",
        "count the SLO as met only if it is also met with one worker fewer in any pool "
        "(default: the results with one worker fewer are only printed)",
    )
    replaying.add_workload(parser)
    replaying.add_slo(parser)
    replaying.add_acceptance(
        parser,
        "also consider EAGLE-3 with these acceptance rates of up to 3 draft tokens, such as "
        "0.8,0.6,0.5, or with published rates of a kind of text, such as chat",
    )
    parser.add_argument(
        "--draft-model",
        metavar="ID",
        help="draft model for EAGLE-3, with --acceptance (default: "
        "nvidia/gpt-oss-120b-Eagle3-v3 for gpt-oss-120b; required for other models)",
    )
    replaying.add_calibration(parser)
    _add_search(parser)
    replaying.add_no_cache(parser)
    arguments.add_json(parser)
    outputs.add_output(parser, default=None)
    outputs.add_report(parser, "write an HTML report with the choice and charts of all replays")
    outputs.add_force(parser, "it exists")
    add_progress(parser)


def _add_search(parser: argparse.ArgumentParser) -> None:
    """What counts as a result, and how long the search may take."""
    parser.add_argument(
        "--confidence",
        type=share,
        metavar="SHARE",
        help="require the SLO to be met at the upper end of the prediction interval with this "
        "coverage, such as 0.9; excludes graphs without an interval (default: use the prediction)",
    )
    parser.add_argument(
        "--objective",
        choices=["cost", "throughput", "interactivity"],
        default="cost",
        help="what to optimize, with the SLO met: cost: the fewest GPUs; throughput: the highest "
        "request rate; interactivity: the most output tokens/s per user (default: cost)",
    )
    add_count(
        parser,
        "--replays",
        "maximum number of replays of the search (default: 20 to 80, fewer if a replay takes long)",
        least=MIN_REPLAYS,
        most=100_000,
    )
    parser.add_argument(
        "--time-limit",
        type=duration_ms,
        metavar="60s",
        help="stop after this time and recommend the best graph so far; the first replay begins "
        "after about 10 s (default: no limit)",
    )


def run(args: argparse.Namespace) -> int:
    from penstock.plan.planning import NoPlan, plan
    from penstock.plan.report import report_of
    from penstock.plan.trials import Deadline

    replaying.end_as_interrupted()
    outputs.check_graph_output(args)
    outputs.require_report(args.report, force=args.force)
    graph = Path(args.output) if args.output not in (None, "-") else None
    outputs.require_different([("-o", graph), ("--report", args.report)])
    requested = replaying.requested_replays(args)
    loaded = replaying.requested_workload(args)
    with tempfile.TemporaryDirectory(prefix="penstock-plan-") as folder:
        request = _requested(args, loaded, Path(folder))
        progress = Progress(args, "planning", line_interval_s=LINE_INTERVAL_S)
        measured: list[Trial] = []
        say = _FirstAnswer(progress, measured, request, is_quiet=args.quiet)
        limit_s = args.time_limit / 1000 if args.time_limit else None
        deadline = Deadline(limit_s, started=time.monotonic())
        requested.left_s = lambda: deadline.left_s
        try:
            with progress.running(), requested as replays:
                result = plan(
                    request,
                    loaded,
                    replays,
                    budget=args.replays,
                    attain=args.attain,
                    say=say,
                    measured=measured,
                    deadline=deadline,
                )
        except KeyboardInterrupt:
            _print_replayed(args, request, loaded, measured, "interrupted")
            raise KeyboardInterrupt("nothing was written") from None
    if isinstance(result, NoPlan):
        _end_without_plan(args, loaded, result, measured)
    report = report_of(result, args.attain, measured)
    _print_plan(args, result, report)
    outputs.write_replay_report(args, report, [], _seeds(measured))
    return 0


class _FirstAnswer:
    """Progress that also prints the first graph that meets the SLO, before it is confirmed."""

    def __init__(
        self, progress: Progress, measured: Sequence[Trial], request: PlanRequest, *, is_quiet: bool
    ) -> None:
        self._progress, self._measured = progress, measured
        self._request = request
        self._is_printed = is_quiet

    def __call__(self, text: str, done: int = 0, total: int = 0) -> None:
        from penstock.plan.evidence import first_answer
        from penstock.plan.report import first_answer_line

        self._progress(text, done, total)
        objective = self._request.objective
        if not self._is_printed and (trial := first_answer(self._measured, objective)):
            self._is_printed = True
            self._progress.hide()
            print(first_answer_line(trial, objective), file=sys.stderr)


def _seeds(measured: Sequence[Trial]) -> int:
    return max((len(trial.row.metrics) for trial in measured), default=1)


def _end_without_plan(
    args: argparse.Namespace, loaded: LoadedWorkload, result: NoPlan, measured: Sequence[Trial]
) -> NoReturn:
    """Print and write what was replayed, and raise the error."""
    from penstock.plan.no_plan import no_plan_error
    from penstock.plan.report import report_without_plan

    error = no_plan_error(result, args.attain, partial(replaying.load_argument, args, loaded))
    if args.json or result.is_late:
        why, (problem,) = "time limit reached", error.problems
        closest = result.miss.trial if result.miss else None
        _print_replayed(args, result.request, loaded, measured, why, problem, closest)
    report = report_without_plan(result, measured, args.attain, error)
    outputs.write_replay_report(args, report, [], _seeds(measured))
    raise error


def _requested(args: argparse.Namespace, loaded: LoadedWorkload, scratch: Path) -> PlanRequest:
    from penstock.plan.request import Objective, plan_request

    request = plan_request(
        args.model,
        loaded,
        scratch=scratch,
        gpu=args.gpu,
        gpus=args.gpus,
        slo=replaying.requested_slo(args),
        objective=Objective(args.objective),
        attain=args.attain,
        gpu_hour_price=args.gpu_hour_price,
        min_replicas=args.min_replicas,
        survives_loss=args.n_minus_one,
        confidence=args.confidence,
        draft_model=args.draft_model,
        acceptance=args.acceptance,
    )
    file = replaying.requested_calibrations(args)
    return request.calibrated(file) if file else request


def _print_plan(args: argparse.Namespace, result: Plan, report: Report) -> None:
    """Write the graph, and print the table and the reasons."""
    from penstock.plan.documents import plan_document
    from penstock.plan.graph_text import graph_text
    from penstock.plan.report import header, table_width
    from penstock.reports.text import print_report
    from penstock.text.terminal import width_of

    lines = header(result, args.attain, outputs.own_command())
    text = graph_text(result.request, result.winner.candidate, lines, result.frontends)
    if args.output:
        outputs.write_output(text, args.output)
    if args.json:
        print(plan_document(result, args.attain, text).as_json())
    elif args.output != "-":
        print_report(report, width=table_width(width_of()))
        if args.output:
            print(f"wrote {args.output}")
        if args.output and not args.quiet:
            outputs.print_prerequisites(result.request, result.winner.candidate)
            print("\nnext steps:", *_next_steps(args, result), sep="\n")
        elif not args.quiet:
            print("hint: write the graph to a file with -o FILE")


def _print_replayed(
    args: argparse.Namespace,
    request: PlanRequest,
    loaded: LoadedWorkload,
    measured: Sequence[Trial],
    why: str,
    problem: Problem | None = None,
    closest: Trial | None = None,
) -> None:
    """The best graphs so far, without a recommendation. ``why``: what ended the search.
    ``problem``, ``closest``: what the command reports, if it was not interrupted."""
    from penstock.plan.documents import no_plan_document
    from penstock.plan.no_plan import best_first, partial_lines
    from penstock.text.terminal import print_fitted, width_of

    best = best_first(measured, request.objective, closest)
    if args.json:
        problem = problem or Problem(message=why)
        print(no_plan_document(request, loaded, args.attain, best, problem).as_json())
        return
    to = sys.stderr if args.output == "-" else sys.stdout
    for line in partial_lines(best, request, args.attain, args.replays, width_of(to), why):
        print_fitted(line, to=to)


def _next_steps(args: argparse.Namespace, result: Plan) -> Iterator[str]:
    file = shlex.quote(args.output)
    folder = "" if result.request.shape.is_gpt_oss else " --model DIR"
    yield f"  {invocation()} check {file}{folder}"
    yield f"  {invocation()} up {file} --engine mocker"
    yield f"  {invocation()} apply {file}"
    if folder:
        yield f"DIR: the folder with config.json of {result.request.model}"
