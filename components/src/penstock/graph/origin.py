"""Find the line of the graph that determines a value of the rendered deployment.

The chart's templates state it next to each value: `# from model.context_length`, the highest
precedence first. tests/graph/test_origin.py changes each leaf of a graph, and checks that every
changed place leads back to that leaf.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from penstock.files import shipped
from penstock.graph.load import LoadedGraph
from penstock.strict_yaml.kind import MOST_KEYS
from penstock.strict_yaml.places import Path, place_of, value_at

# ("decode", "engine_config", "kv_cache_config", "dtype"), ("decode", "env", "NAME"),
# ("frontend", "args", "--migration-limit")
Place = Sequence[str | int]
NO_WORKERS = ("frontend", "planner")  # components that engine.env and engine.args do not affect
_ABSENT: Any = object()
ENV_TEMPLATES = ("env", "hardware", "planner")
_FLAG = re.compile(r"--[a-z][\w-]*")
_KEY = re.compile(r"(?P<indent> *)(?P<name>[\w-]+):")
# A row of the list of flags that the frontend's template writes one after the other.
_ROUTER_FLAG = re.compile(r'\(list "(?P<flag>--[\w-]+)" "(?P<key>\w+)"\)')


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where a value comes from."""

    # Dotted path in the graph: what determines the value, or what to set to change it.
    path: str
    # The line of the path, or of its nearest existing section. None for a --set.
    line: int | None
    # Whether the graph does not set the path.
    default: bool
    # The --set expression that set the path.
    override: str | None = None
    # The column of `line`.
    column: int | None = None


def origin(loaded: LoadedGraph, place: Place) -> Origin:
    """The origin of a variable, a flag or an option of the engine's file of one component."""
    paths = determining_paths(loaded, place)
    configured = [path for path in paths if value_at(loaded.values, path) is not None]
    first = place_of((configured or paths)[0])
    line, column = loaded.places.position_of(first) or (None, None)
    return Origin(
        path=first,
        line=line,
        column=column,
        default=not configured,
        override=loaded.places.set_of(first),
    )


def determining_paths(loaded: LoadedGraph, place: Place) -> list[Path]:
    """The paths that may determine a place, highest precedence first; at least one."""
    pool, what, *rest = map(str, place)
    if what == "engine_config":
        paths = _config(loaded, pool, tuple(place[2:]))
    else:
        paths = (_env if what == "env" else _args)(loaded, pool, rest[0])
    return paths or [(pool,)]


def _env(loaded: LoadedGraph, pool: str, name: str) -> list[Path]:
    layers = [(pool,), ()] if pool in NO_WORKERS else [(pool,), ("engine",), ()]
    paths: list[Path] = [(*layer, "env", name) for layer in layers]
    written = [path for path in paths if value_at(loaded.values, path) is not None]
    # A variable that the user sets replaces the one that the chart derives; the innermost counts.
    stated = (_stated(template).get(name) for template in ENV_TEMPLATES)
    return written[:1] or _expanded(loaded, pool, next(filter(None, stated), ())) or paths


def _args(loaded: LoadedGraph, pool: str, flag: str) -> list[Path]:
    """A flag that the user wrote, with its values; the last occurrence, which counts, is first."""
    written: list[Path] = []
    for section in (pool,) if pool in NO_WORKERS else (pool, "engine"):
        args = [str(arg) for arg in value_at(loaded.values, (section, "args")) or []]
        for start in reversed(range(len(args))):
            if args[start].partition("=")[0] == flag:
                written += [(section, "args", i) for i in range(start, _end(args, start))]
    # The programs read the last of several equal flags, and the user's come after the chart's.
    stated = _stated(pool if pool in NO_WORKERS else "worker")
    return written or _expanded(loaded, pool, stated.get(flag, ("{pool}.args",)))


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
    stated = _stated(loaded.graph.engine.kind)
    # A key below a derived section, such as one of speculative_config, has the section's origin.
    for length in range(len(path), 0, -1):
        if (paths := stated.get(place_of(path[:length]))) is not None:
            return _expanded(loaded, pool, paths)
    return [(pool, "config", *path), ("engine", "config", *path)]


def _configured(loaded: LoadedGraph, pool: str, path: Path) -> list[Path]:
    """The path as spelled in the configs of the pool and of the engine that contain it."""
    spelled: list[Path] = []
    kind = loaded.graph.engine.kind
    for section in (pool, "engine"):
        config = value_at(loaded.values, (section, "config")) or {}
        for key in config:
            if _spelling(kind, key) == path[0]:
                place: Path = (section, "config", key, *path[1:])
                spelled += [place] if value_at(loaded.values, place, _ABSENT) is not _ABSENT else []
    return spelled


@lru_cache(maxsize=2 * MOST_KEYS)
def _spelling(engine: str, key: str) -> str:
    """A key as the chart writes it; see penstock.config.spelled in templates/_config.tpl."""
    if engine not in ("vllm", "sglang"):
        return key
    flag = key.replace("_", "-")
    is_tp = engine == "sglang" and flag == "tensor-parallel-size"
    return "tp-size" if is_tp else flag


@lru_cache
def _stated(template: str) -> Mapping[str, tuple[str, ...]]:
    """Each flag, variable and option of an engine's file → the paths that the template names."""
    text = (shipped("chart", "helm/penstock") / "templates" / f"_{template}.tpl").read_text()
    stated = {row["flag"]: (f"router.{row['key']}",) for row in _ROUTER_FLAG.finditer(text)}
    sections: dict[int, str] = {}  # by indentation
    for line in text.splitlines():
        written, _, paths = line.partition("# from ")
        # A line may choose between two flags, depending on the engine: both have its origin.
        names = _FLAG.findall(written)
        if key := _KEY.match(written):
            depth = len(key["indent"])
            sections = {d: name for d, name in sections.items() if d < depth}
            sections[depth] = key["name"]
            names = [".".join(sections.values())]
        stated |= dict.fromkeys(names, tuple(paths.split(", "))) if paths else {}
    return stated


def _expanded(loaded: LoadedGraph, pool: str, stated: Iterable[str]) -> list[Path]:
    """The paths of a template; `config:KEY` is the key in the configs that contain it."""
    paths: list[Path] = []
    for path in stated:
        if path.startswith("config:"):
            paths += _configured(loaded, pool, tuple(path.removeprefix("config:").split(".")))
        else:
            paths.append(tuple(path.format(pool=pool).split(".")))
    return paths
