"""The adapter's options on the command line of the frontend that runs it."""

from __future__ import annotations

import argparse
from pathlib import Path

from .limits import MOST_MESSAGES, SizeLimits
from .rules import ENGINES


def split(argv: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """The adapter's options, and the argv of the frontend behind it."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    # Named so that they are none of the frontend's, such as --model.
    parser.add_argument("--adapter-engine", choices=ENGINES, required=True)
    parser.add_argument("--adapter-inner-port", type=int, required=True)
    parser.add_argument("--adapter-model", type=Path, default=None)
    parser.add_argument("--adapter-template", type=Path, default=None)
    parser.add_argument("--adapter-tool-call-parser", default=None)
    parser.add_argument("--adapter-max-messages", type=int, default=MOST_MESSAGES)
    parser.add_argument("--adapter-max-request-kib", type=int, default=None)
    parser.add_argument("--adapter-output-limit", type=int, default=None)
    parser.add_argument("--adapter-allow-host", action="append", default=[])
    parser.add_argument("--http-host", required=True)
    parser.add_argument("--http-port", type=int, required=True)
    options, rest = parser.parse_known_args(argv)
    inner = ["--http-host", "127.0.0.1", "--http-port", str(options.adapter_inner_port)]
    return options, ["dynamo.frontend", *rest, *inner]


def size_limits(options: argparse.Namespace) -> SizeLimits:
    """Those of the graph, or the defaults."""
    kib = options.adapter_max_request_kib
    return SizeLimits(
        max_messages=options.adapter_max_messages, max_bytes=None if kib is None else kib * 1024
    )
