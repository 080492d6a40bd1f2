"""Outputs of `--json`, each validated by its published schema in docs/schemas."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator

from tests.support.command_line import ROOT


@cache
def validator(command: str) -> Draft202012Validator:
    schema = json.loads((ROOT / "docs" / "schemas" / f"{command}.json").read_text("utf-8"))
    return Draft202012Validator(schema)


def read_output(command: str, text: str) -> Any:
    """What ``command`` printed; jsonschema.ValidationError if it does not have the schema."""
    document = json.loads(text)
    validator(command).validate(document)
    return document
