"""`penstock init [FILE]`: write a first graph; asks for what the options leave open."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from penstock.cli import arguments, outputs
from penstock.cli.command_line import not_a_choice
from penstock.cli.outputs import print_prerequisites
from penstock.cli.replaying import add_old_flag, current_workload
from penstock.cli.values import add_count, duration_ms, integer_between
from penstock.errors import CheckError, GraphError, InputError, PenstockError, UsageError
from penstock.text.commands import invocation
from penstock.text.numbers import plain_number
from penstock.text.terminal import print_fitted

if TYPE_CHECKING:
    from penstock.checks.finding import Tally
    from penstock.hardware import Gpu
    from penstock.plan.starting_graph import StartingGraph, Traffic

PROG = "penstock init"
MAX_GPUS = 1024
GPUS = integer_between(1, MAX_GPUS)
QUESTIONS = ("model", "gpu", "gpus", "workload")
WORKLOADS = ("short-chat", "document", "agentic", "latency", "batch")
GIVEN = (
    "Give them as options, such as `--model gpt-oss-20b --gpu h100 --gpus 1 --workload short-chat`."
)
Answer = TypeVar("Answer")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file",
        metavar="FILE",
        nargs="?",
        help="graph YAML to write; must not exist (default: MODEL-GPU-WORKLOAD.yaml)",
    )
    parser.add_argument(
        "--example",
        metavar="GRAPH",
        help="copy a graph that comes with penstock instead: quickstart, gpt-oss-120b-h200-disagg, "
        "… (default of FILE: GRAPH.yaml)",
    )
    parser.add_argument("--model", metavar="NAME", help="openai/gpt-oss-120b or openai/gpt-oss-20b")
    arguments.add_gpu(parser, "GPU type: h100, h200, b200, b300, gb200 or gb300")
    parser.add_argument(
        "--gpus", type=GPUS, metavar="N", help="number of GPUs that the graph may use"
    )
    parser.add_argument(
        "--workload",
        type=partial(current_workload, PROG),
        choices=WORKLOADS,
        help="short-chat: high concurrency, about 1024 input (ISL) and 1024 output tokens (OSL); "
        "document: ISL 8192, OSL 1024; agentic: 8 turns of ISL 1500 and OSL 300 after a shared "
        "system prompt of 12288 tokens; latency: lengths of short-chat, low concurrency, lowest "
        "inter-token latency; batch: lengths of document, highest tokens/s per GPU",
    )
    add_old_flag(parser, "--traffic", "--workload", partial(current_workload, PROG), WORKLOADS)
    add_count(
        parser,
        "--concurrency",
        "requests at the same time; limits the number of workers and their batch (default: "
        "use all GPUs, with the usual batch)",
    )
    parser.add_argument(
        "--ttft", type=duration_ms, metavar="500ms", help="SLO: maximum time to first token"
    )
    parser.add_argument(
        "--itl", type=duration_ms, metavar="20ms", help="SLO: maximum inter-token latency"
    )


def _traffic(text: str) -> Traffic:
    from penstock.plan.starting_graph import Traffic

    name = current_workload(PROG, text)
    if name not in WORKLOADS:
        raise argparse.ArgumentTypeError(not_a_choice(name, WORKLOADS))
    return Traffic(name)


def run(args: argparse.Namespace) -> int:
    if args.file is not None:
        args.file = _yaml_file(args.file)
        _require_new(args.file)  # before the questions
    if args.example is not None:
        return _copy(args)
    graph = _graph(args)
    file = args.file or Path(f"{_short(graph)}.yaml")
    _require_new(file)
    _write(file, graph.text(_command(args, file, graph)))
    print_fitted(f"{file}: {graph.summary()}")
    print_fitted(f"chosen {graph.reason()}; `penstock plan` chooses by replaying the workload")
    print_fitted(f"updates: {graph.update()}")
    counts = _check(file)
    if not args.quiet:
        _print_advice(file, graph)
    return CheckError.exit_code if counts.errors else 0


def _copy(args: argparse.Namespace) -> int:
    """Write a copy of a graph that comes with penstock."""
    from penstock.graph.text_file import shipped_graph

    answers = (*QUESTIONS, "concurrency", "ttft", "itl")
    if excluded := [f"--{name}" for name in answers if getattr(args, name) is not None]:
        raise UsageError(f"--example and {', '.join(excluded)} exclude each other")
    text = shipped_graph(args.example)
    file = args.file or Path(Path(args.example).stem + ".yaml")
    _require_new(file)
    _write(file, text)
    name = shlex.quote(str(file))
    print(f"wrote {file}")
    if not args.quiet:
        print(f"\nnext steps:\n  {invocation()} check {name}\n  {invocation()} up {name}")
    return 0


def _graph(args: argparse.Namespace) -> StartingGraph:
    """The graph of the options and of the answers to what they leave open."""
    from penstock.graph.slo import Slo
    from penstock.plan.starting_graph import (
        DESCRIPTIONS,
        GPU_NAMES,
        MODELS,
        find_model_id,
        graph_gpu,
        starting_graph,
    )

    _require_answers(args)
    kinds = "".join(f"  {kind:<10}  {what}\n" for kind, what in DESCRIPTIONS.items())
    model = _answer(args.model, f"Model ({', '.join(MODELS)})", MODELS[0], find_model_id)
    gpu: Gpu = _answer(args.gpu, f"GPU ({', '.join(GPU_NAMES)})", "h100", graph_gpu)
    gpus = _answer(args.gpus, "Number of GPUs", str(gpu.gpus_per_node), GPUS)
    traffic: Traffic = _answer(args.workload, f"{kinds}Workload", "short-chat", _traffic)
    slo = Slo(ttft_ms=args.ttft, itl_ms=args.itl)
    return starting_graph(model, gpu, gpus, traffic, slo=slo, concurrency=args.concurrency)


def _require_answers(args: argparse.Namespace) -> None:
    """UsageError if a question is open and there is no terminal."""
    missing = [f"--{name}" for name in QUESTIONS if getattr(args, name) is None]
    if missing and not sys.stdin.isatty():
        raise UsageError(f"without a terminal, {', '.join(missing)} must be given", fix=GIVEN)


def _answer(answer: object, question: str, default: str, read: Callable[[str], Answer]) -> Answer:
    """The option's value, or the first valid answer to the question. Raises UsageError for an
    invalid option or the end of the input."""
    if answer is not None:
        return read(str(answer))
    while True:
        try:
            text = input(f"{question} [{default}]: ").strip() or default
        except EOFError:
            print()  # the message begins on a new line
            message = "the input ended before all questions were answered"
            raise UsageError(message, fix=GIVEN) from None
        try:
            return read(text)
        except PenstockError as error:
            print(error, file=sys.stderr)
        except argparse.ArgumentTypeError as error:
            print(f"{error}. Try again.", file=sys.stderr)


def _yaml_file(text: str) -> Path:
    """The path of a graph to write. InputError for the name of a folder or of another format."""
    file = Path(text)
    if text.endswith(os.sep):
        message, example = "names a folder", file / "graph.yaml"
    elif file.suffix == ".json":
        message, example = "names a JSON file, but a graph is YAML", file.with_suffix(".yaml")
    else:
        return file
    raise InputError(message, file=text, fix=f"Name a YAML file, such as {example}.")


def _require_new(file: Path) -> None:
    """Refuse a name before the questions, and not after them."""
    from penstock.graph.load import name_problems

    if file.is_dir():
        fix = "Name a file in it, such as graph.yaml."
        raise InputError("is a folder", file=str(file), fix=fix)
    if file.exists() or file.is_symlink():
        fix = "Name another file, or remove it first."
        raise InputError("already exists", file=str(file), fix=fix)
    if problems := name_problems(str(file)):
        raise GraphError(*problems)
    if not os.access(file.absolute().parent, os.W_OK):
        message = "there is no such folder, or it is read-only"
        raise InputError(message, file=str(file), fix=outputs.WRITABLE)


def _write(file: Path, text: str) -> None:
    """InputError if it cannot be written, or if another process has just created it."""
    try:
        with file.open("x", encoding="utf-8") as output:
            output.write(text)
    except OSError as error:
        message = f"cannot be written: {error.strerror}"
        raise InputError(message, file=str(file), fix=outputs.WRITABLE) from None


def _short(graph: StartingGraph) -> str:
    model = graph.request.model.rpartition("/")[2]
    return f"{model}-{graph.request.gpu.name}-{graph.traffic}"


def _command(args: argparse.Namespace, file: Path, graph: StartingGraph) -> str:
    """The command line that writes the same graph without questions."""
    request = graph.request
    words = ["penstock", "init", file.name, "--model", request.model, "--gpu", request.gpu.name]
    words += ["--gpus", str(request.gpus), "--workload", graph.traffic]
    words += ["--concurrency", str(args.concurrency)] if args.concurrency else []
    words += ["--ttft", f"{plain_number(args.ttft)}ms"] if args.ttft else []
    words += ["--itl", f"{plain_number(args.itl)}ms"] if args.itl else []
    return shlex.join(words)


def _check(file: Path) -> Tally:
    """Print what `check` finds."""
    from penstock.checks.finding import tally
    from penstock.checks.merge import merged
    from penstock.checks.report import CheckReport, print_text
    from penstock.checks.run import check_file
    from penstock.serving.understand import Hints

    findings = merged(check_file(file, Hints()))
    counts = tally(findings)
    if counts.errors or counts.warnings:
        print_text(CheckReport(findings=findings, files=(str(file),)))
    else:
        print("checked: no errors, no warnings", end="")
        print(f", {counts.suppressed} suppressed" if counts.suppressed else "")
    for finding in findings:
        if finding.suppressed:
            print_fitted(
                f"suppressed: {finding.rule}: {finding.message}. Reason: {finding.suppressed}"
            )
    return counts


def _print_advice(file: Path, graph: StartingGraph) -> None:
    """What is still to do."""
    print_prerequisites(graph.request, graph.candidate)
    print("\nnext steps:", *_next_steps(file, graph), sep="\n  ")


def _next_steps(file: Path, graph: StartingGraph) -> Iterator[str]:
    from penstock.plan.request import MAX_GPUS as MAX_PLANNED
    from penstock.simulate.timing import SYSTEMS
    from penstock.workload.load import SAME_LENGTHS

    request, name = graph.request, shlex.quote(str(file))
    yield f"{invocation()} check {name}"
    yield f"{invocation()} up {name} --engine mocker"
    if request.gpu.name in SYSTEMS and request.gpus <= MAX_PLANNED:
        model = request.model.rpartition("/")[2]
        slo = request.slo
        limits = (
            f"--ttft {plain_number(slo.ttft_ms or 500)}ms --itl {plain_number(slo.itl_ms or 20)}ms"
        )
        concurrency = f" --concurrency {graph.concurrency}" if graph.concurrency else ""
        yield (
            f"{invocation()} plan --model {model} --gpu {request.gpu.name} --gpus {request.gpus} "
            f"--workload {SAME_LENGTHS.get(graph.traffic, graph.traffic)} {limits}{concurrency}"
        )
