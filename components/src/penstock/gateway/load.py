"""A gateway YAML → Gateway, or one GraphError with everything that is wrong with it.

Reads as strictly as a graph is read, with the same reader; every error has its line.
"""

from __future__ import annotations

from pathlib import Path

from penstock.gateway.model import Gateway
from penstock.gateway.problems import field_problems
from penstock.graph.load import read_text_file
from penstock.strict_yaml.kind import DocumentKind
from penstock.strict_yaml.parse import parse_strictly

GATEWAY = DocumentKind(
    name="a gateway file",
    example="k8s/gateway/gateway.yaml",
    may_quote_lines=False,  # a broken line may hold an API key
)


def load_gateway(path: Path) -> Gateway:
    """Read and check a file; InputError if it cannot be read, GraphError if it is wrong."""
    return parse_gateway(read_text_file(path), str(path))


def parse_gateway(text: str, source: str) -> Gateway:
    """Check the text of a gateway; ``source`` is its file, for messages."""
    return parse_strictly(text, source, GATEWAY, Gateway, field_problems)
