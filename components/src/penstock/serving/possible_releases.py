"""The releases of Dynamo that a deployment may be written for, from its modules and flags.

`checks/apply_versions.py` uses them for images without a version.
"""

from __future__ import annotations

from penstock.engines.flag_history import has_history, presence, releases_of
from penstock.engines.flags import flag_table
from penstock.engines.releases import RELEASES
from penstock.serving.deployment import ServingDeployment


def possible_releases(deployment: ServingDeployment) -> tuple[str, ...]:
    """The releases that have every module and flag, of those that any release has; oldest first.
    All releases if no release has them together."""
    known = list(RELEASES)
    possible = set(known)
    for component in deployment.components:
        for launch in component.launches:
            module = launch.module or ""
            if (runs := releases_of(module)) is not None:
                possible &= set(known[known.index(runs.first) : known.index(runs.last) + 1])
            table = flag_table(module)
            if table is None or not has_history(module):
                continue
            for given in table.read(launch.arguments):
                span = presence(module, given.spelling.partition(".")[0])
                if span is not None:
                    possible &= set(known[known.index(span.first) : known.index(span.last) + 1])
    return tuple(name for name in known if name in possible) or tuple(known)
