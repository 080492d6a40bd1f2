"""A gateway YAML → Gateway, or one GraphError with everything that is wrong with it.

Reads as strictly as a graph is read, with the same reader; every error has its line.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from pydantic import ValidationError

from penstock.errors import GraphError, Problem
from penstock.gateway.model import Gateway
from penstock.gateway.problems import findings
from penstock.graph.document import read_document
from penstock.graph.load import read_text_file
from penstock.graph.places import Places
from penstock.graph.problems import located

EXAMPLE = "k8s/gateway/gateway.yaml"


def load_gateway(path: Path) -> Gateway:
    """Read and check a file; InputError if it cannot be read, GraphError if it is wrong."""
    return parse_gateway(read_text_file(path), str(path))


def parse_gateway(text: str, source: str) -> Gateway:
    """Check the text of a gateway; ``source`` is its file, for messages."""
    try:
        document = read_document(text, source)
    except GraphError as error:
        raise GraphError(*(_for_a_gateway(p) for p in error.problems)) from None
    problems = [_for_a_gateway(p) for p in document.problems]
    try:
        gateway = Gateway.model_validate(document.values)
    except ValidationError as error:
        places = Places(lines=document.lines)
        problems += located(findings(error), problems, places, source)
    if problems:
        raise GraphError(*sorted(problems, key=lambda p: (p.line or 0, p.place)))
    return gateway


def _for_a_gateway(problem: Problem) -> Problem:
    """The reader speaks of graphs, and shows a broken line: here somebody may have put a key."""
    message = re.sub(r"(at column \d+) of `.*`: ", r"\1: ", problem.message)
    message = message.replace("a graph is a map", "a gateway is a map")
    return replace(
        problem,
        message=message.replace("; Helm would read only the first", ""),
        fix=problem.fix.replace("one in dynamo_graphs/", EXAMPLE),
    )
