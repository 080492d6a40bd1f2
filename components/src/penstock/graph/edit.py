"""`penstock scale` and `upgrade`: change values in the text of a graph, and no other byte.

The text is spliced at the positions of the values, as a YAML library would reformat the file.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any

import yaml

from penstock.errors import GraphError, InputError, Problem
from penstock.graph.load import LoadedGraph, parse_graph
from penstock.graph.renamed_keys import warn_of
from penstock.graph.text_file import read_text_file
from penstock.strict_yaml.kind import MOST_REPLICAS
from penstock.strict_yaml.loader import SafeLoader
from penstock.strict_yaml.places import Path, place_of
from penstock.text.names import did_you_mean
from penstock.text.numbers import plain_number

# Start and end (character offsets), and the text that replaces what is between them.
Splice = tuple[int, int, str]


def set_replicas(text: str, changes: Mapping[str, int], source: str = "graph.yaml") -> str:
    """The text of the graph with `replicas` of the named components changed.

    GraphError if the graph is invalid before or after, or if a name or number is.
    """
    loaded = parse_graph(text, source)
    warn_of(loaded.deprecations)
    _check(loaded, changes)
    for name, count in changes.items():
        text = _with_entry(text, name, "replicas", str(count), source)
    return text


def set_values(
    text: str, section: str, changes: Mapping[str, float | str | None], source: str = "graph.yaml"
) -> str:
    """The text of the graph with numbers and words of a top-level section changed; None unsets one.

    A key may need those before it: they are set before it, and unset after it.
    GraphError if the graph is invalid before or after, or if a value cannot be changed alone.
    """
    unset = [key for key, setting in changes.items() if setting is None]
    for key in [*reversed(unset), *(key for key in changes if key not in unset)]:
        setting = changes[key]
        entry = plain_number(setting) if isinstance(setting, float | int) else setting or "null"
        text = _with_entry(text, section, key, entry, source)
    return text


def set_texts(
    text: str, changes: Mapping[Path, str | tuple[str, ...]], source: str = "graph.yaml"
) -> str:
    """The text of the graph with the strings at these paths changed.

    A tuple replaces one item of a list by several. A key that the graph does not have is added if
    it is at the top level.
    GraphError if the graph is invalid before or after, or if a value cannot be changed alone.
    """
    expected = parse_graph(text, source).values
    # From the end, as several items move those that follow.
    for path, replacement in sorted(changes.items(), key=lambda change: _last_first(change[0])):
        words = (replacement,) if isinstance(replacement, str) else replacement
        splices = _splices(text, path, [json.dumps(w, ensure_ascii=False) for w in words])
        if not splices:
            raise GraphError(_by_hand(source, path, replacement))
        text = _spliced(text, splices[0])
        expected = _with_value(expected, path, replacement)
    if parse_graph(text, source).values != expected:
        raise GraphError(
            *(_by_hand(source, path, replacement) for path, replacement in changes.items())
        )
    return text


def set_scalar(text: str, path: Path, item: str) -> str:
    """The text of any YAML file with the scalar at a path that exists replaced by a YAML text."""
    return _spliced(text, _splices(text, path, [item])[0])


def _last_first(path: Path) -> tuple[str, int]:
    """A sort key: higher indices of a list come before lower ones."""
    last = path[-1]
    return (place_of(path[:-1]), -last) if isinstance(last, int) else (place_of(path), 0)


def _by_hand(source: str, path: Path, replacement: str | tuple[str, ...]) -> Problem:
    text = replacement if isinstance(replacement, str) else "`, `".join(replacement)
    return Problem(
        file=source,
        place=place_of(path),
        message="cannot be edited automatically",
        fix=f"Edit the file and set it to `{text}`.",
    )


def _splices(text: str, path: Path, items: Sequence[str]) -> list[Splice]:
    """Possible splices that put the YAML texts of ``items`` at a path, best first: several in place
    of one item of a list. A key that the graph does not have is added."""
    # libyaml's marks do not count a byte order mark.
    offset = 1 if text.startswith("\ufeff") else 0
    root = yaml.compose(text[offset:], Loader=SafeLoader)
    newline = "\r\n" if "\r\n" in text else "\n"
    parents: list[yaml.Node | None] = [root]
    for key in path:
        parents.append(_child(parents[-1], key))
    *_, parent, node = parents
    splices: list[Splice] = []
    if isinstance(node, yaml.ScalarNode) and node.style in ("|", ">"):
        return []
    if node is not None and not isinstance(node, yaml.CollectionNode):
        start, end = node.start_mark.index, node.end_mark.index
        joined = _separator(text, parent, start + offset).join(items)
        splices = [(start, end, joined if start != end else _spaced(text, start + offset, joined))]
    elif isinstance(parent, yaml.MappingNode) and node is None:
        splices = [_new_key(parent, f"{path[-1]}: {items[0]}", newline)]
    elif isinstance(root, yaml.MappingNode) and len(path) == 2:
        entry = f"{path[1]}: {items[0]}"
        splices = _new_section(text[offset:], root, f"{path[0]}:", entry, newline)
    return [(start + offset, end + offset, new) for start, end, new in splices]


def _spliced(text: str, splice: Splice) -> str:
    start, end, new = splice
    return text[:start] + new + text[end:]


def _child(node: yaml.Node | None, key: str | int) -> yaml.Node | None:
    if isinstance(node, yaml.SequenceNode):
        child: yaml.Node = node.value[int(key)]
        return child
    if isinstance(node, yaml.MappingNode):
        return next((child for name, child in node.value if name.value == str(key)), None)
    return None


def _separator(text: str, parent: yaml.Node | None, at: int) -> str:
    """What separates two items of the list in which an item begins at this position."""
    if not isinstance(parent, yaml.SequenceNode) or parent.flow_style:
        return ", "
    newline = "\r\n" if "\r\n" in text else "\n"
    dash = text[text.rfind("\n", 0, at) + 1 : at]
    return f"{newline}{dash}"


def _spaced(text: str, at: int, quoted: str) -> str:
    """The value with a space on each side where an empty value had none."""
    before = "" if text[at - 1].isspace() else " "
    after = " " if text[at : at + 1] == "#" else ""
    return f"{before}{quoted}{after}"


def _with_value(values: Any, keys: Path, replacement: Any) -> Any:
    """The values with another one at the path."""
    if not keys:
        return replacement
    if isinstance(values, (list, tuple)):
        at = int(keys[0])
        if len(keys) == 1 and isinstance(replacement, tuple):
            return [*values[:at], *replacement, *values[at + 1 :]]
        return [*values[:at], _with_value(values[at], keys[1:], replacement), *values[at + 1 :]]
    section = values or {}
    return {**section, keys[0]: _with_value(section.get(keys[0]), keys[1:], replacement)}


def scalable_pools(text: str) -> tuple[str, ...]:
    """The pools whose number of replicas the graph sets. GraphError for an invalid graph."""
    loaded = parse_graph(text, "graph.yaml")
    return tuple(name for name in loaded.graph.pools if not _is_autoscaled(loaded, name))


def edit_replicas(path: FilePath, changes: Mapping[str, int]) -> bool:
    """Set the replicas of the named components in the file; whether this changed it.

    Processes edit the file one at a time, so that no edit is lost. Errors as in `set_replicas` and
    `write_text`.
    """
    with _only_editor(path.resolve().parent):
        before = read_text_file(path)
        after = set_replicas(before, changes, str(path))
        if after != before:
            write_text(path, after)
        return after != before


def restore_text(path: FilePath, edited: str, before: str) -> bool:
    """Undo an edit, unless the file was edited again; whether it was undone. Raises InputError."""
    with _only_editor(path.resolve().parent):
        is_own = edited != before and read_text_file(path) == edited
        if is_own:
            write_text(path, before)
        return is_own


@contextlib.contextmanager
def _only_editor(folder: FilePath) -> Iterator[None]:
    """Hold a lock on the folder, as an edit replaces the file. Without one, if the folder cannot be
    read, or its file system has no locks."""
    handle = None
    try:
        with contextlib.suppress(OSError):
            handle = os.open(folder, os.O_RDONLY)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        if handle is not None:
            os.close(handle)


def write_text(path: FilePath, text: str) -> None:
    """Replace a file atomically and keep its mode. InputError if it may not be written: a
    replacement would not respect that it is read-only."""
    path = path.resolve()
    try:
        if not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, "the file is read-only")
        _replace(path, text)
    except PermissionError as error:
        message = f"cannot be written: {error.strerror}"
        fix = "Use a copy of the file in a folder in which you may write."
        raise InputError(message, file=str(path), fix=fix) from None


def _replace(path: FilePath, text: str) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = FilePath(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        shutil.copymode(path, temporary)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _check(loaded: LoadedGraph, changes: Mapping[str, int]) -> None:
    known = ["frontend", *loaded.graph.pools]
    problems = [_unknown(loaded.source, name, known) for name in changes if name not in known]
    problems += [
        _located(
            loaded,
            f"{name}.replicas",
            f"must be an integer from 0 to {MOST_REPLICAS:,}, got {count!r}",
            f"Give a number, such as `{name}=2`.",
        )
        for name, count in changes.items()
        if name in known and not _is_count(count)
    ]
    problems += [_owned(loaded, name) for name in changes if _is_autoscaled(loaded, name)]
    if problems:
        raise GraphError(*problems)


def _is_autoscaled(loaded: LoadedGraph, name: str) -> bool:
    return bool((loaded.values.get(name) or {}).get("autoscaling"))


def _owned(loaded: LoadedGraph, name: str) -> Problem:
    owner = loaded.values[name]["autoscaling"]["owner"]
    fixes = {
        "planner": "Change `min` there and `planner.max_gpus`",
        "external": "Scale its scaling adapter",
    }
    message = f"{owner} sets the number of replicas, not the graph"
    fix = f"{fixes.get(owner, 'Change `min` and `max` there')}, or remove `autoscaling`."
    return _located(loaded, f"{name}.autoscaling", message, fix)


def _located(loaded: LoadedGraph, place: str, message: str, fix: str) -> Problem:
    problem = Problem(file=loaded.source, place=place, message=message, fix=fix)
    return loaded.places.located(problem)


def _is_count(count: object) -> bool:
    return isinstance(count, int) and not isinstance(count, bool) and 0 <= count <= MOST_REPLICAS


def _unknown(source: str, name: str, known: list[str]) -> Problem:
    listed = ", ".join(known)
    fix = did_you_mean(name, known) or f"Use one of them, such as `{known[-1]}=2`."
    return Problem(file=source, message=f"no component `{name}`; this graph has {listed}", fix=fix)


def _with_entry(text: str, name: str, key: str, written: str, source: str) -> str:
    """The text after the first splice that gives the expected values when it is read again."""
    path = (name, key)
    loaded = yaml.load(written, Loader=SafeLoader)  # noqa: S506
    # The edited text is read again: a splice that changes anything else is never written.
    expected = _with_value(parse_graph(text, source).values, path, loaded)
    for splice in _splices(text, path, [written]):
        edited = _spliced(text, splice)
        try:
            if parse_graph(edited, source).values == expected:
                return edited
        except GraphError:
            continue
    raise GraphError(_by_hand(source, path, written))


def _new_key(section: yaml.MappingNode, entry: str, newline: str) -> Splice:
    """A splice that adds the entry at the start of a map, in the style of the map."""
    start = section.start_mark
    if section.flow_style:
        return start.index + 1, start.index + 1, f"{entry}, " if section.value else entry
    return start.index, start.index, f"{entry}{newline}{' ' * start.column}"


def _new_section(
    text: str, root: yaml.MappingNode, key: str, entry: str, newline: str
) -> list[Splice]:
    """Splices that add a section at the end of the graph, or else at its start."""
    start, end = root.start_mark, root.end_mark.index
    if root.flow_style:
        return [(start.index + 1, start.index + 1, f"{key} {{{entry}}}, ")]
    indent = " " * start.column
    block = f"{key}{newline}{indent}  {entry}{newline}"
    lead = "" if text[:end].endswith("\n") else newline
    return [(end, end, f"{lead}{indent}{block}"), (start.index, start.index, f"{block}{indent}")]
