"""Changes one place of a document: what a test breaks is one line of it."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

GONE: Any = object()


def edited(document: Any, changes: dict[str, Any]) -> Any:
    """A copy with `spec/list/0/field` set to a value each, appended at `-`, or taken out by GONE.

    In a key, `~1` is a slash.
    """
    copy = deepcopy(document)
    for place, value in changes.items():
        *parents, last = (part.replace("~1", "/") for part in place.split("/"))
        target = copy
        for part in parents:
            target = target[int(part)] if isinstance(target, list) else target.setdefault(part, {})
        if isinstance(target, list):
            if last == "-":
                target.append(value)
            elif value is GONE:
                del target[int(last)]
            else:
                target[int(last)] = value
        elif value is GONE:
            del target[last]
        else:
            target[last] = value
    return copy
