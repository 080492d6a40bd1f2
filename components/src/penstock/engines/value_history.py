"""Which versions of vLLM and SGLang refuse a key or a choice, from a table of their sources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

from penstock.engines.flags import load
from penstock.manifests.deployment import Engine

TABLE = "value_history.json"
EVERY = "*"


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """Consecutive versions of an engine that refuse a value."""

    first: str
    last: str
    # The values that these versions accept.
    accepted: tuple[str, ...]
    # The version after them that accepts the value, and the one before; empty if none does.
    added_in: str
    removed_after: str

    # Whether the table has no version before or after these.
    is_first: bool
    is_last: bool

    @property
    def specifier(self) -> str:
        """These versions. Versions older than the table's also lack a value that was added later,
        and newer ones a removed value."""
        limits = ([] if self.is_first else [f">={self.first}"]) + (
            [] if self.is_last else [f"<={self.last}"]
        )
        return ",".join(limits)


def names(engine: Engine, kind: str) -> tuple[str, ...]:
    """The flags (`choices`), sections (`sections`) or keys (`connectors`) of the table."""
    return tuple(load(TABLE).get(engine.value, {}).get(kind, {}))


def known_values(engine: Engine, kind: str, name: str) -> tuple[str, ...]:
    """The values that any version of the engine accepts."""
    return tuple(load(TABLE).get(engine.value, {}).get(kind, {}).get(name, {}))


def is_known(engine: Engine, kind: str, name: str, value: str) -> bool:
    """Whether any version of the engine accepts the value."""
    return value in known_values(engine, kind, name)


def refusals(engine: Engine, kind: str, name: str, value: str) -> Iterator[Refusal]:
    """The versions that refuse ``value``, which others accept.

    A version that does not restrict the flag refuses none.
    """
    table = load(TABLE)[engine.value]
    versions: list[str] = table["versions"]
    listed: Mapping[str, list[int]] = table[kind][name]
    if value not in listed:
        return
    restricted = {at for positions in listed.values() for at in positions}
    restricted -= set(listed.get(EVERY, ()))
    refusing = sorted(restricted - set(listed[value]))
    for _, run in groupby(enumerate(refusing), key=lambda pair: pair[1] - pair[0]):
        at = [position for _, position in run]
        yield Refusal(
            first=versions[at[0]],
            last=versions[at[-1]],
            accepted=tuple(v for v, seen in listed.items() if at[-1] in seen),
            added_in=versions[at[-1] + 1] if at[-1] + 1 in listed[value] else "",
            removed_after=versions[at[0] - 1] if at[0] - 1 in listed[value] else "",
            is_first=at[0] == 0,
            is_last=at[-1] == len(versions) - 1,
        )
