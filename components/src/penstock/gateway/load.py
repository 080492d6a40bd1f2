"""A gateway YAML → Gateway, or one GraphError with everything that is wrong with it.

Reads as strictly as a graph is read, with the same reader; every error has its line.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from penstock.errors import Problem
from penstock.gateway.model import Gateway
from penstock.gateway.problems import findings
from penstock.graph.load import read_text_file
from penstock.strict_yaml.parse import parse_strictly, said_of

EXAMPLE = "k8s/gateway/gateway.yaml"


def load_gateway(path: Path) -> Gateway:
    """Read and check a file; InputError if it cannot be read, GraphError if it is wrong."""
    return parse_gateway(read_text_file(path), str(path))


def parse_gateway(text: str, source: str) -> Gateway:
    """Check the text of a gateway; ``source`` is its file, for messages."""
    return parse_strictly(text, source, Gateway, findings, _for_a_gateway)


def _for_a_gateway(problem: Problem) -> Problem:
    """The reader shows a broken line: here somebody may have put a key."""
    message = re.sub(r"(at column \d+) of `.*`: ", r"\1: ", problem.message)
    return said_of(replace(problem, message=message), "a gateway", EXAMPLE)
