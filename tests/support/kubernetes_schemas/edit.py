"""Change single places of a document, so that a test states only what it breaks."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

REMOVED: Any = object()


def edited(document: Any, changes: dict[str, Any]) -> Any:
    """A copy with a value set at each path such as `spec/list/0/field`.

    `-` appends to a list, REMOVED deletes, and `~1` in a key is a slash.
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
            elif value is REMOVED:
                del target[int(last)]
            else:
                target[int(last)] = value
        elif value is REMOVED:
            del target[last]
        else:
            target[last] = value
    return copy
