"""Find the line of the graph that determines a value of the rendered deployment.

The tables repeat what helm/penstock/templates do. tests/graph/test_origin.py compares the two: it
changes each leaf of a graph, and checks that every changed place leads back to that leaf.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
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
from penstock.strict_yaml.limits import MOST_KEYS
from penstock.strict_yaml.places import Path, place_of

# ("decode", "replicas"), ("decode", "engine_config", "kv_cache_config", "dtype"),
# ("frontend", "args", "--migration-limit"), ("decode", "env", "NAME")
Place = Sequence[str | int]
NO_WORKERS = ("frontend", "planner")  # components that engine.env and engine.args do not affect


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where a value comes from."""

    # Dotted path in the graph: what determines the value, or what to set to change it.
    path: str
    # The line of the path, or of its nearest existing section. None for a --set.
    line: int | None
    # Whether the graph does not set the path.
    default: bool
    # Further paths that determine the value together with `path`.
    also: tuple[str, ...] = ()
    # The --set expression that set the path.
    override: str | None = None
    # The column of `line`.
    column: int | None = None


def origin(loaded: LoadedGraph, place: Place) -> Origin:
    """The origin of a value of one component; for an unknown place, the component itself."""
    component, what, *rest = place
    pool = str(component)
    paths = list(_candidates(loaded, pool, str(what), rest)) or [(pool,)]
    configured = [path for path in paths if _value(loaded.values, path) is not None]
    first, *others = [place_of(path) for path in configured or paths]
    return Origin(
        path=first,
        line=loaded.places.line_of(first),
        column=loaded.places.column_of(first),
        default=not configured,
        also=tuple(others),
        override=loaded.places.set_of(first),
    )


def _candidates(loaded: LoadedGraph, pool: str, what: str, rest: list[str | int]) -> Iterable[Path]:
    """The paths that may determine a place, highest precedence first."""
    if what == "engine_config":
        return _config(loaded, pool, tuple(rest))
    if what == "env":
        return _env(loaded, pool, str(rest[0]))
    if what == "args":
        return _args(loaded, pool, str(rest[0]))
    return _expanded(loaded, pool, PLAIN.get(what, ("{pool}." + what,)))


def _env(loaded: LoadedGraph, pool: str, name: str) -> list[Path]:
    layers = [(pool,), ()] if pool in NO_WORKERS else [(pool,), ("engine",), ()]
    paths: list[Path] = [(*layer, "env", name) for layer in layers]
    found = [path for path in paths if _value(loaded.values, path) is not None]
    return found[:1] or _expanded(loaded, pool, ENV.get(name, ())) or paths


def _args(loaded: LoadedGraph, pool: str, flag: str) -> list[Path]:
    """A flag that the user wrote, with its values; the last occurrence, which counts, is first."""
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
    """The key in the user's engine configuration, else what the chart derives it from."""
    configured = _configured(loaded, pool, path)
    if configured:
        return configured[:1]
    table = CONFIG[loaded.graph.engine.kind]
    for length in range(len(path), 0, -1):
        if (derived := table.get(place_of(path[:length]))) is not None:
            return _expanded(loaded, pool, derived)
    return [(pool, "config", *path), ("engine", "config", *path)]


def _configured(loaded: LoadedGraph, pool: str, path: Path) -> list[Path]:
    """The path as spelled in the configs of the pool and of the engine that contain it."""
    found: list[Path] = []
    kind = loaded.graph.engine.kind
    for section in (pool, "engine"):
        config = _value(loaded.values, (section, "config")) or {}
        for key in config:
            if _spelling(kind, key) == path[0]:
                here: Path = (section, "config", key, *path[1:])
                found += [here] if _has(loaded.values, here) else []
    return found


@lru_cache(maxsize=2 * MOST_KEYS)
def _spelling(engine: str, key: str) -> str:
    """A key as the chart writes it; see penstock.config.spelled in templates/_config.tpl."""
    if engine not in ("vllm", "sglang"):
        return key
    flag = key.replace("_", "-")
    is_tp = engine == "sglang" and flag == "tensor-parallel-size"
    return "tp-size" if is_tp else flag


def _expanded(loaded: LoadedGraph, pool: str, rules: Iterable[str]) -> list[Path]:
    """Table entries as paths; `config:KEY` is the key in the configs that contain it."""
    paths: list[Path] = []
    for rule in rules:
        if rule.startswith("config:"):
            paths += _configured(loaded, pool, tuple(rule.removeprefix("config:").split(".")))
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
