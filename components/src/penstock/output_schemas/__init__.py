"""The JSON schemas of the output of `--json`; `generate.py` writes them to `docs/schemas`."""

from penstock.output_schemas.schemas import COMMANDS, output_schema

__all__ = ["COMMANDS", "output_schema"]
