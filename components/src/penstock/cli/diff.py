"""`penstock diff GRAPH`: what an upgrade would do, before it does it."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.cli import arguments

if TYPE_CHECKING:
    from penstock.cluster.before import Before
    from penstock.graph.load import LoadedGraph

CHANGED = 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_graph(parser, "graph YAML")
    arguments.add_sets(parser)
    arguments.add_namespace(parser)
    arguments.add_cluster(parser)
    parser.add_argument(
        "--from",
        dest="before",
        metavar="FILE",
        type=Path,
        help="compare with a graph or with manifests instead of the cluster",
    )
    arguments.add_json(parser)


def run(args: argparse.Namespace) -> int:
    from penstock.cluster import before, words
    from penstock.cluster.diff import diff
    from penstock.graph.load import load_graph
    from penstock.manifests.source import render_graph

    loaded = load_graph(args.graph, args.sets)
    name = args.release or loaded.name
    after = render_graph(loaded, args.namespace, name=name)
    if args.before:
        old = before.of_file(args.before, name, args.namespace)
    else:
        old = before.of_cluster(name, args.namespace, args.kubeconfig, args.context, after.objects)
    found = diff(old.objects, after.objects)
    if args.json:
        report: dict[str, Any] = {"release": name, **words.as_dict(found, old.drift)}
        print(json.dumps({**report, "refused_by_server": list(old.refused)}, indent=1))
    else:
        print(_title(name, args, old))
        lines = words.as_lines(
            found,
            drift=old.drift,
            gpus_there=_gpus_there(loaded),
            kv_tokens=before.kv_tokens(old.objects),
        )
        print("\n".join(f"  {line}" for line in lines))
        for text in old.refused:
            print(f"  refused: {text} (the API server)")
    return 0 if found.is_empty and not old.drift and not old.refused else CHANGED


def _title(name: str, args: argparse.Namespace, old: Before) -> str:
    where = f"{args.namespace}/{name}"
    return f"{where} against {old.what}:"


def _gpus_there(loaded: LoadedGraph) -> int | None:
    """GPUs that the graph may use, where it says so."""
    hardware = loaded.graph.hardware
    if hardware.gpus_per_node is None or hardware.nodes is None:
        return None
    return hardware.gpus_per_node * hardware.nodes
