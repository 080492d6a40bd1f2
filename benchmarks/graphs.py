"""Copies of the repository's graphs, for benchmarks that start them."""

from __future__ import annotations

from pathlib import Path

from penstock.tiny_model import write

GRAPHS = Path(__file__).parents[1] / "dynamo_graphs"
ETCD = "\ninfrastructure:\n  discovery: etcd\n  events: nats\n"
MODEL = "tiny-gpt-oss"


def copy_graph(name: str, folder: Path, model: Path | None = None) -> Path:
    """A copy in ``folder``. A graph for the CPU uses ``model``; if unset, one written there."""
    text = (GRAPHS / f"{name}.yaml").read_text("utf-8")
    placeholder = f".penstock/models/{MODEL}"
    if placeholder in text:
        if model is None:
            model = folder / MODEL
            write(model)
        text = text.replace(placeholder, str(model))
    path = folder / f"{name}.yaml"
    path.write_text(text, "utf-8")
    return path
