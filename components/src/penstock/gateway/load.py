"""Load a gateway file with the strict reader that graphs use."""

from __future__ import annotations

from pathlib import Path

from penstock.gateway.model import Gateway
from penstock.gateway.problems import field_problems
from penstock.graph.text_file import read_text_file
from penstock.shipped import in_repository
from penstock.strict_yaml.kind import DocumentKind
from penstock.strict_yaml.problems import parse_strictly

GATEWAY = DocumentKind(
    is_small=True,
    name="a gateway file",
    example=in_repository("k8s/gateway/gateway.yaml"),
    may_quote_lines=False,  # a broken line may hold an API key
)


def load_gateway(path: Path) -> Gateway:
    """InputError when the file cannot be read, GraphError with every problem in it."""
    return parse_gateway(read_text_file(path), str(path))


def parse_gateway(text: str, source: str) -> Gateway:
    """``source`` is the file, for messages. GraphError with every problem."""
    return parse_strictly(text, source, GATEWAY, Gateway, field_problems)
