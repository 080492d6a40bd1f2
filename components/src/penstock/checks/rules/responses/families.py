"""The tables of families.yaml: the parsers of each model family, and what Dynamo's parsers read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from penstock.models.known import CACHED, QUANTIZED
from penstock.strict_yaml.loader import SafeLoader

REASONING_FLAG, TOOL_FLAG = "--dyn-reasoning-parser", "--dyn-tool-call-parser"
# Flag → its key in the table.
KINDS = {REASONING_FLAG: "reasoning", TOOL_FLAG: "tools"}


class Thinks(StrEnum):
    """Whether a model reasons if the request does not say."""

    BY_DEFAULT = "by default"
    ON_REQUEST = "on request"
    NEVER = "never"


@dataclass(frozen=True, kw_only=True)
class Family:
    """The head of families.yaml explains the fields."""

    name: str
    ids: str
    reasoning: str = ""
    tools: str = ""
    also: tuple[str, ...] = ()
    thinks: Thinks
    is_published_without: bool = False
    source: str

    @property
    def is_gpt_oss(self) -> bool:
        return self.reasoning == "gpt_oss"

    def parser(self, flag: str) -> str:
        """The best parser for one of Dynamo's flags; empty if no source names one."""
        return self.reasoning if flag == REASONING_FLAG else self.tools


@dataclass(frozen=True, kw_only=True)
class Parsers:
    """The parsers of one of Dynamo's flags."""

    # Name → the first release that has it.
    since: Mapping[str, str]
    # What a model writes, after "writes" → the names of the parsers that read it.
    formats: Mapping[str, tuple[str, ...]]

    def format_of(self, name: str) -> str | None:
        """What a parser reads; None if it is not known."""
        return next((text for text, names in self.formats.items() if name in names), None)


@cache
def _tables() -> Mapping[str, Any]:
    text = files(__package__).joinpath("families.yaml").read_text("utf-8")
    return dict(yaml.load(text, SafeLoader))  # noqa: S506  a subclass of PyYAML's safe loader


@cache
def families() -> tuple[Family, ...]:
    """All families; ValueError if one has another `thinks`."""
    return tuple(
        Family(
            **{
                **row,
                "also": tuple(row.get("also", ())),
                "thinks": Thinks(row.get("thinks", Thinks.BY_DEFAULT)),
            }
        )
        for row in _tables()["families"]
    )


@cache
def parsers(flag: str) -> Parsers:
    """The parsers of one of Dynamo's flags."""
    table = _tables()[KINDS[flag]]
    return Parsers(
        since={name: since for since, names in table["since"].items() for name in names.split()},
        formats={text: tuple(names.split()) for text, names in table["formats"].items()},
    )


def family_of(model: str) -> Family | None:
    """The family of an id, the path of a cache, or a folder with the model's name."""
    cached = CACHED.search(model)
    last = (cached[2] if cached else model.rstrip("/").rpartition("/")[2]).lower()
    while (shorter := QUANTIZED.sub("", last)) != last:
        last = shorter
    return next((family for family in families() if re.fullmatch(family.ids, last)), None)
