"""How many values the aliases of a text stand for.

Nine lines of aliases of aliases stand for more values than a machine can hold ("billion laughs").
Readers share the values, so that only what walks over all of them takes forever.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import yaml

# Of a file; goyaml, with which kubectl reads, has a similar limit.
MOST_ALIASED = 20_000
TOO_MANY_ALIASED = f"the aliases of the file stand for more than {MOST_ALIASED:,} values"
WRITE_OUT = "Write the values out instead of referring to aliases of aliases."


@dataclass
class AliasCount:
    """Counts while the events of a text are read."""

    # Values that aliases stand for so far.
    aliased: int = 0
    # Values so far, with those of aliases.
    _total: int = 0
    # Anchor → the number of values in it.
    _sizes: dict[str, int] = field(default_factory=dict)
    # The anchor of each open collection, and the total at its begin.
    _open: list[tuple[str | None, int]] = field(default_factory=list)

    def add(self, event: yaml.Event) -> bool:
        """Count an event; whether aliases still stand for at most MOST_ALIASED values."""
        if isinstance(event, yaml.CollectionEndEvent):
            self._keep(*self._open.pop())
        elif isinstance(event, yaml.AliasEvent):
            size = self._sizes.get(event.anchor or "", 1)
            self.aliased += size
            self._total += size
        elif isinstance(event, yaml.NodeEvent):
            self._total += 1
            if isinstance(event, yaml.CollectionStartEvent):
                self._open.append((event.anchor, self._total - 1))
            else:
                self._keep(event.anchor, self._total - 1)
        return self.aliased <= MOST_ALIASED

    def _keep(self, anchor: str | None, before: int) -> None:
        if anchor is not None:
            self._sizes[anchor] = self._total - before
