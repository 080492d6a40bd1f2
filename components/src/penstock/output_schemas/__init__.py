"""The JSON schemas of the output of `--json`; `generate.py` writes them to `docs/schemas`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Discriminator

from penstock.bench.documents import WorkloadDocument
from penstock.bench.methods.documents import MethodDocument
from penstock.bench.shadow.documents import ShadowDocument
from penstock.capture.documents import CaptureDocument
from penstock.drill.documents import DrillDocument
from penstock.plan.documents import NoPlanDocument, PlanDocument
from penstock.reports.json_document import Schema, schema_of
from penstock.simulate.documents import SimulateDocument
from penstock.verify.documents import VerifyDocument

DOCUMENTS: Mapping[str, Any] = {
    "bench": Annotated[WorkloadDocument | MethodDocument | ShadowDocument, Discriminator("kind")],
    "capture": CaptureDocument,
    "drill": DrillDocument,
    "plan": PlanDocument | NoPlanDocument,
    "simulate": SimulateDocument,
    "verify": VerifyDocument,
}
COMMANDS = tuple(DOCUMENTS)


def output_schema(command: str) -> Schema:
    """The JSON schema, draft 2020-12, of what ``command`` prints; one of `COMMANDS`."""
    return schema_of(DOCUMENTS[command], title_of(command))


def title_of(command: str) -> str:
    return f"Output of penstock {command} --json"
