"""Report a launch that the engine rejects at the line of the graph that caused it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from penstock.engines.parsers import Rejected
from penstock.errors import LaunchError, Problem
from penstock.graph.load import LoadedGraph
from penstock.graph.origin import origin

_FLAG = re.compile(r"--[A-Za-z][\w.-]*")
_OPTION = re.compile(r"\b[A-Za-z_][\w-]*(?:\.[A-Za-z_][\w-]*)*\b")


def launch_error(
    refused: Iterable[Rejected], source: str, loaded: LoadedGraph | None
) -> LaunchError:
    """One error with each problem once: every pool rejects an option that all pools share."""
    problems = [_located(r, source, loaded) for r in refused]
    return LaunchError(*dict.fromkeys(problems))


def _located(refused: Rejected, source: str, loaded: LoadedGraph | None) -> Problem:
    problem = replace(refused.problem, file=source)
    if loaded is None:
        return problem
    for place in _places(refused):
        source = origin(loaded, place)
        if not source.default:
            return replace(problem, line=source.line, place=source.path)
    return replace(problem, place=refused.component)


def _places(refused: Rejected) -> Iterator[Sequence[str]]:
    """Where the engine's message may point: a flag, or an option of its configuration file."""
    for flag in _FLAG.findall(refused.engine_message):
        yield (refused.component, "args", flag)
    # The longest path is the most specific: `engine.speedup_ratio` before `engine`.
    options = _OPTION.findall(refused.engine_message)
    for option in sorted(options, key=lambda name: -name.count(".")):
        yield (refused.component, "engine_config", *option.split("."))
