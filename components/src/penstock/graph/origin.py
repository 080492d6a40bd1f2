"""From a value of the rendered deployment back to the line of the graph that decided it.

The rules are those of helm/penstock/templates, and tests/graph/test_origin.py holds the two
together: it changes each leaf of a graph and looks whether every place that moved leads back to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.graph.load import LoadedGraph
from penstock.graph.origin_tables import (
    CONFIG,
    ENV,
    FRONTEND_FLAGS,
    PLAIN,
    PLANNER_FLAGS,
    WORKER_FLAGS,
)
from penstock.strict_yaml.places import Path, place_of

# ("decode", "replicas"), ("decode", "engine_config", "kv_cache_config", "dtype"),
# ("frontend", "args", "--migration-limit"), ("decode", "env", "NAME")
Place = Sequence[str | int]
NO_WORKERS = ("frontend", "planner")  # what engine.env and engine.args are not for


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where a value comes from: dotted ``path`` in the graph, its ``line``, and the rest.

    ``default``: the graph does not say it, so ``path`` is what to write to change it and ``line``
    that of the nearest section there is. ``also``: further paths that decide it together with
    ``path``. ``override``: the --set that gave it; there is no line then.
    """

    path: str
    line: int | None
    default: bool
    also: tuple[str, ...] = ()
    override: str | None = None


def origin(loaded: LoadedGraph, place: Place) -> Origin:
    """The origin of a value of one component; a place no rule knows leads to its component."""
    component, what, *rest = place
    pool = str(component)
    paths = list(_candidates(loaded, pool, str(what), rest)) or [(pool,)]
    said = [path for path in paths if _value(loaded.values, path) is not None]
    first, *others = [place_of(path) for path in said or paths]
    return Origin(
        path=first,
        line=loaded.places.line_of(first),
        default=not said,
        also=tuple(others),
        override=loaded.places.set_of(first),
    )


def _candidates(loaded: LoadedGraph, pool: str, what: str, rest: list[str | int]) -> Iterable[Path]:
    """The paths that may decide a place, the strongest first."""
    if what == "engine_config":
        return _config(loaded, pool, tuple(rest))
    if what == "env":
        return _env(loaded, pool, str(rest[0]))
    if what == "args":
        return _args(loaded, pool, str(rest[0]))
    return _expanded(loaded, pool, PLAIN.get(what, ("{pool}." + what,)))


def _env(loaded: LoadedGraph, pool: str, name: str) -> list[Path]:
    layers = [(pool,), ()] if pool in NO_WORKERS else [(pool,), ("engine",), ()]
    said: list[Path] = [(*layer, "env", name) for layer in layers]
    found = [path for path in said if _value(loaded.values, path) is not None]
    return found[:1] or _expanded(loaded, pool, ENV.get(name, ())) or said


def _args(loaded: LoadedGraph, pool: str, flag: str) -> list[Path]:
    """A flag the user wrote, with its values; the last of several is the one a program takes."""
    found: list[Path] = []
    for section in (pool,) if pool in NO_WORKERS else (pool, "engine"):
        args = [str(arg) for arg in _value(loaded.values, (section, "args")) or []]
        for start in reversed(range(len(args))):
            if args[start].partition("=")[0] == flag:
                found += [(section, "args", i) for i in range(start, _end(args, start))]
    known = {"frontend": FRONTEND_FLAGS, "planner": PLANNER_FLAGS}.get(pool, WORKER_FLAGS)
    return found or _expanded(loaded, pool, known.get(flag, ("{pool}.args",)))


def _end(args: list[str], start: int) -> int:
    """Index after the last value of the flag at ``start``."""
    end = start + 1
    while end < len(args) and not args[end].startswith("--"):
        end += 1
    return end


def _config(loaded: LoadedGraph, pool: str, path: Path) -> list[Path]:
    """What the user wrote in the engine's words, else what the chart derives it from."""
    said = _said(loaded, pool, path)
    if said:
        return said[:1]
    table = CONFIG[loaded.graph.engine.kind]
    for length in range(len(path), 0, -1):
        if (derived := table.get(place_of(path[:length]))) is not None:
            return _expanded(loaded, pool, derived)
    return [(pool, "config", *path), ("engine", "config", *path)]


def _said(loaded: LoadedGraph, pool: str, path: Path) -> list[Path]:
    """The path as it is spelt in the pool's config and in the engine's, where it stands there."""
    found: list[Path] = []
    for section in (pool, "engine"):
        config = _value(loaded.values, (section, "config")) or {}
        for key in config:
            here: Path = (section, "config", key, *path[1:])
            if _spelt(loaded, key) == path[0] and _has(loaded.values, here):
                found.append(here)
    return found


def _spelt(loaded: LoadedGraph, key: str) -> str:
    """A key as the chart writes it; see penstock.config.spelt in templates/_config.tpl."""
    if loaded.graph.engine.kind not in ("vllm", "sglang"):
        return key
    flag = key.replace("_", "-")
    is_tp = loaded.graph.engine.kind == "sglang" and flag == "tensor-parallel-size"
    return "tp-size" if is_tp else flag


def _expanded(loaded: LoadedGraph, pool: str, rules: Iterable[str]) -> list[Path]:
    """Table entries as paths; `config:KEY` is the key wherever the user wrote it."""
    paths: list[Path] = []
    for rule in rules:
        if rule.startswith("config:"):
            paths += _said(loaded, pool, tuple(rule.removeprefix("config:").split(".")))
        else:
            paths.append(tuple(rule.format(pool=pool).split(".")))
    return paths


_ABSENT: Any = object()


def _value(values: Mapping[str, Any], path: Path) -> Any:
    found = _find(values, path)
    return None if found is _ABSENT else found


def _has(values: Mapping[str, Any], path: Path) -> bool:
    return _find(values, path) is not _ABSENT


def _find(values: Any, path: Path) -> Any:
    for step in path:
        try:
            values = values[step]
        except (KeyError, IndexError, TypeError):
            return _ABSENT
    return values
