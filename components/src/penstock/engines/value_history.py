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

    @property
    def specifier(self) -> str:
        return f">={self.first},<={self.last}"


def names(engine: Engine, kind: str) -> tuple[str, ...]:
    """The flags (`choices`), sections (`sections`) or keys (`connectors`) of the table."""
    return tuple(load(TABLE).get(engine.value, {}).get(kind, {}))


def refusals(
    engine: Engine, kind: str, name: str, value: str, *, before: str = ""
) -> Iterator[Refusal]:
    """The versions, older than ``before`` if that is given, that refuse ``value``.

    A version that does not restrict the flag refuses none. Nothing is reported for a value that
    no version has: a build of one's own may have it.
    """
    table = load(TABLE)[engine.value]
    versions: list[str] = table["versions"]
    listed: Mapping[str, list[int]] = table[kind][name]
    if value not in listed:
        return
    restricted = {at for positions in listed.values() for at in positions}
    restricted -= set(listed.get(EVERY, ()))
    end = versions.index(before) if before else len(versions)
    refusing = sorted(at for at in restricted - set(listed[value]) if at < end)
    for _, run in groupby(enumerate(refusing), key=lambda pair: pair[1] - pair[0]):
        at = [position for _, position in run]
        yield Refusal(
            first=versions[at[0]],
            last=versions[at[-1]],
            accepted=tuple(v for v, seen in listed.items() if at[-1] in seen),
            added_in=versions[at[-1] + 1] if at[-1] + 1 in listed[value] else "",
            removed_after=versions[at[0] - 1] if at[0] - 1 in listed[value] else "",
        )
