"""A real frontend of Dynamo with a request trace, and a mocker, on loopback."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from penstock.local.ports import Ports
from penstock.tokenizer import FOLDER
from tests.support.dynamo_processes import dynamo_processes

MODEL = "traced"


@contextmanager
def traced_frontend(folder: Path, variables: Mapping[str, str], ports: Ports) -> Iterator[str]:
    """Yields the URL. ``variables``: of the frontend, such as DYN_REQUEST_TRACE_SINKS."""
    worker = (
        "-m", "dynamo.mocker", "--model-path", str(FOLDER), "--model-name", MODEL,
        "--block-size", "32", "--num-gpu-blocks-override", "4096",
    )  # fmt: skip
    traced = {"frontend": dict(variables) | {"DYN_REQUEST_TRACE": "1"}}
    router = ("--router-mode", "kv")
    with dynamo_processes(
        folder, MODEL, {"worker": worker}, ports, frontend=router, variables=traced
    ) as url:
        yield url
