"""`penstock verify TARGET`: prove that a running deployment does what its graph says."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli import arguments

if TYPE_CHECKING:
    from penstock.verify.target import Target


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target", metavar="URL|GRAPH", help="an endpoint, or a graph that `up` runs here"
    )
    parser.add_argument(
        "--graph",
        type=Path,
        help="the graph, or DGD manifest, that it must match (default: the GRAPH that runs)",
    )
    arguments.add_sets(parser)
    parser.add_argument(
        "--metrics",
        metavar="URL",
        action="append",
        default=[],
        help="/metrics of a worker or frontend; may be repeated (GRAPH: known)",
    )
    parser.add_argument(
        "--log",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="log of a worker or frontend; may be repeated (GRAPH: known)",
    )
    parser.add_argument(
        "--model-dir",
        metavar="DIR",
        type=Path,
        help="folder with the model's config.json (default: where the model is found here)",
    )
    parser.add_argument(
        "--only", metavar="PROBE", action="append", default=[], help="this probe; may be repeated"
    )
    arguments.add_json(parser)


def run(args: argparse.Namespace) -> int:
    from penstock.errors import NotVerifiedError
    from penstock.verify.report import print_json, print_results
    from penstock.verify.run import verify

    _require_probes(args.only)
    target = _target(args)
    try:
        results = verify(target, args.only)
        shown = print_json(results) if args.json else print_results(results)
    finally:
        target.close()
    bad = [result.name for result in shown if not result.ok]
    if bad:
        raise NotVerifiedError(f"not verified: {', '.join(bad)}")
    return 0


def _require_probes(names: list[str]) -> None:
    import difflib

    from penstock.errors import InputError, Problem
    from penstock.verify.probes import PROBES

    for name in names:
        if name not in PROBES:
            near = difflib.get_close_matches(name, PROBES, n=1)
            fix = f"did you mean {near[0]}?" if near else f"there are {', '.join(PROBES)}"
            raise InputError(
                Problem(place="--only", message=f"no probe is called {name!r}", fix=fix)
            )


def _target(args: argparse.Namespace) -> Target:
    from penstock.manifests.source import open_source
    from penstock.verify.expected import expected_of
    from penstock.verify.target import Target

    remote = args.target.startswith(("http://", "https://"))
    graph = args.graph or (None if remote else Path(args.target))
    source = open_source(graph, args.sets) if graph is not None else None
    expected = expected_of(source) if source is not None else None
    target = Target(
        url=args.target.rstrip("/").removesuffix("/v1"),
        expected=expected,
        metrics_urls=tuple(args.metrics),
        logs=tuple(args.log),
        model_folder=args.model_dir or _model_folder(graph, args.sets),
    )
    return target if remote else _running_here(target, Path(args.target), args)


def _running_here(target: Target, path: Path, args: argparse.Namespace) -> Target:
    """``target`` with the addresses that `up` wrote down for the graph at ``path``."""
    from dataclasses import replace

    from penstock.local.control import status

    state = status(path, args.sets if args.graph is None else ())
    ports = [r["system_port"] or r["port"] for r in state["replicas"] if r["role"] != "other"]
    own = [f"http://127.0.0.1:{port}/metrics" for port in ports]
    return replace(
        target,
        url=state["endpoint"].removesuffix("/v1"),
        namespace=state["discovery"]["namespace"],
        metrics_urls=(*own, *target.metrics_urls),
        logs=(*(Path(r["log"]) for r in state["replicas"]), *target.logs),
    )


def _model_folder(graph: Path | None, sets: list[str]) -> Path | None:
    """Where the graph's model lies on this machine, if it does."""
    from penstock.local.machine import model_folder
    from penstock.manifests.source import open_source

    loaded = open_source(graph, sets).loaded if graph is not None else None
    if loaded is None:
        return None
    return model_folder(loaded.graph.model.path or loaded.graph.model.id)
