"""An engine's refusal of its command line, told at the line of the graph that caused it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from penstock.engines.parsers import Refused
from penstock.errors import LaunchError, Problem
from penstock.graph.load import LoadedGraph
from penstock.graph.origin import origin

_FLAG = re.compile(r"--[A-Za-z][\w.-]*")
_OPTION = re.compile(r"\b[A-Za-z_][\w-]*(?:\.[A-Za-z_][\w-]*)*\b")


def launch_error(
    refused: Iterable[Refused], source: str, loaded: LoadedGraph | None
) -> LaunchError:
    """One error with each problem once: an option of all pools is refused in every one of them."""
    problems = [_told(r, source, loaded) for r in refused]
    return LaunchError(*dict.fromkeys(problems))


def _told(refused: Refused, source: str, loaded: LoadedGraph | None) -> Problem:
    problem = replace(refused.problem, file=source)
    if loaded is None:
        return problem
    for place in _places(refused):
        found = origin(loaded, place)
        if not found.default:
            return replace(problem, line=found.line, place=found.path)
    return replace(problem, place=refused.component)


def _places(refused: Refused) -> Iterator[Sequence[str]]:
    """Where the words of the message may stand: as a flag, or as an option of the engine's file."""
    message = refused.problem.message
    for flag in _FLAG.findall(message):
        yield (refused.component, "args", flag)
    # The longest path says most: `engine.speedup_ratio` before the word `engine`.
    for option in sorted(_OPTION.findall(message), key=lambda o: -o.count(".")):
        yield (refused.component, "engine_config", *option.split("."))
