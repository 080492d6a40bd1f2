"""`penstock render GRAPH`: print the manifests, as `helm template` does, or the images in them."""

from __future__ import annotations

import argparse

from penstock.cli import arguments, outputs
from penstock.cli.command_line import add_switch


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_graph(parser, "graph YAML")
    arguments.add_sets(parser)
    arguments.add_namespace(parser)
    outputs.add_generated_output(parser)
    add_switch(
        parser,
        "--images",
        "print only the container images, one a line, for example to copy them to a registry",
    )


def run(args: argparse.Namespace) -> int:
    from penstock.graph.load import load_graph
    from penstock.manifests.render import images
    from penstock.manifests.source import render_graph

    rendered = render_graph(load_graph(args.graph, args.sets), args.namespace)
    if args.images:
        print(*images(rendered.objects), sep="\n")
        return 0
    outputs.write_generated(args, rendered.text, "# Source: penstock/templates/")
    return 0
