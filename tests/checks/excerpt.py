"""Cut the lines that matter out of a file that violates a rule, and out of its repair.

Kept are the values that differ, the places of the findings, the settings and numbers that the
message names, those of shows.py, and the keys above them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache

from penstock.checks.finding import Finding
from tests.checks.yaml_lines import Node, Path, flag_groups, nodes_of

LEFT_OUT = "# …"
INDEX = r"\[\d+\]$"
NUMBER = r"(?<![\w.,\[-])\d[\d,]*(?:\.\d+)?(?![\w\]])"
# Settings whose value a message names in other words: a worker with 4 GPUs has TP 4.
SIZES = (
    r"^gpus$|^nvidia\.com/gpu$|^nodeCount$|^context_length$|fraction|^--(tp-size|tensor-parallel)"
)
# A section with so few values is shown as a whole, if a finding is about it.
SMALL = 6
# Items that are shown of a list of flags in which the other file has one more.
NEIGHBORS = 2
POOLS = ("worker", "prefill", "decode")
# What is shown of a long component that only one of the files has, and what is long.
ESSENTIAL = ("name", "type", "replicas", "gpus")
LONGEST_COMPONENT = 24
# Components that are shown of those that only one of the files has.
MOST_COMPONENTS = 2
# Items of a list of flags; of a longer one only the first and the changed are shown.
MOST_ITEMS = 8
# A script of at most so many lines is shown.
LONGEST_SCRIPT = 14


@dataclass(frozen=True, kw_only=True)
class Excerpt:
    """Lines of a file, and the numbers of those (from 1) that the finding is about."""

    text: str
    marked: tuple[int, ...]


@dataclass
class _File:
    text: str
    nodes: list[Node] = field(init=False)
    groups: dict[Path, list[Node]] = field(init=False)
    keep: set[Path] = field(default_factory=set)
    marked: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.nodes = nodes_of(self.text)
        self.groups = {n.path: group for group in flag_groups(self.nodes) for n in group}

    def values(self) -> dict[tuple[Path, str | None], Node]:
        """By path and text; a flag is the same wherever it is in its list."""
        values: dict[tuple[Path, str | None], Node] = {}
        for node in self.nodes:
            group = self.groups.get(node.path)
            words = (
                "\n".join(["-", *(str(member.text) for member in group)]) if group else node.text
            )
            values[node.path[:-1] if group else node.path, words] = node
        return values

    def add(self, node: Node, *, mark: bool = False) -> None:
        for member in self.groups.get(node.path, [node]):
            self.keep.add(member.path)
            if mark:
                self.marked |= set(range(member.first, member.last + 1))


@cache
def excerpts(
    bad: str, fixed: str, findings: tuple[Finding, ...], shows: tuple[str, ...] = ()
) -> tuple[Excerpt, Excerpt]:
    """The excerpts of the file with the findings, and of the repaired file.

    ``shows``: settings that both show: a flag, or a key with as many of the keys above it as needed
    (`worker/gpus`).
    """
    first, second = _File(bad), _File(fixed)
    _add_differences(first, second)
    _add_differences(second, first, mark=True)
    for finding in findings:
        _add_finding(first, finding)
    for file in (first, second):
        _add_shown(file, shows)
    context = set(first.keep)
    for file, other in ((first, set(second.keep)), (second, context)):
        known = {node.path for node in file.nodes}
        file.keep |= {path for path in other if path in known and path not in file.groups}
    _add_flags_of_other(first, second)
    for file in (first, second):
        _add_names(file)
    return _cut(first), _cut(second, otherwise=findings)


def _add_differences(file: _File, other: _File, *, mark: bool = False) -> None:
    """The values that the other file does not have, and where it would have them."""
    other_values = other.values()
    paths = {node.path for node in other.nodes}
    brief = set(_brief_components(file, paths))
    hidden = _new_components(file, paths)[MOST_COMPONENTS:]
    different = [
        node
        for value, node in file.values().items()
        if value not in other_values and (node.text is not None or node.path not in paths)
    ]
    for node in different:
        if node.path not in paths or node.path in file.groups:
            _add_neighbors(other, node.path, paths)
        if component_of(node.path) in hidden:
            continue
        if component_of(node.path) in brief and not _is_essential(node.path):
            continue
        if _is_long(file, node, different) and not _has_flag(other, node, file):
            continue
        file.add(node, mark=mark)


def _is_essential(path: Path) -> bool:
    """Whether it is a component, or one of its own keys that say what it is."""
    depth = 2 if path[0] == "" else 4
    return len(path) <= depth or (len(path) == depth + 1 and path[-1] in ESSENTIAL)


def _new_components(file: _File, other_paths: set[Path]) -> list[str]:
    """Components that the other file does not have."""
    first = {component_of(node.path): node for node in reversed(file.nodes)}
    new = [name for name, node in first.items() if name and node.path not in other_paths]
    return sorted(new, key=lambda name: first[name].first)


def _brief_components(file: _File, other_paths: set[Path]) -> Iterator[str]:
    for component in _new_components(file, other_paths):
        nodes = [node for node in file.nodes if component_of(node.path) == component]
        if len(nodes) > LONGEST_COMPONENT:
            yield component


def _is_long(file: _File, node: Node, different: Sequence[Node]) -> bool:
    """Whether the node is one of many items by which two lists differ."""
    if node.path not in file.groups:
        return False
    items = [n for n in different if n.path in file.groups and n.path[:-1] == node.path[:-1]]
    return len(items) > MOST_ITEMS and node not in items[: NEIGHBORS + 1]


def _has_flag(file: _File, node: Node, of: _File) -> bool:
    """Whether the file has the flag of the node, with another value."""
    flag = of.groups[node.path][0].text or ""
    return flag.startswith("--") and any(flag == n.text for n in file.nodes)


def _add_neighbors(file: _File, missing: Path, paths: set[Path]) -> None:
    """The section where the other file has a value, and the first flags of a list of flags."""
    above = missing[:-1]
    while above and above not in paths:
        above = above[:-1]
    if not above:
        return
    file.keep.add(above)
    if above[-1] == "args":
        beside = [n for n in file.nodes if n.path[:-1] == above and n.text is not None]
        for node in beside[:NEIGHBORS]:
            file.add(node)


def _add_finding(file: _File, finding: Finding) -> None:
    lines = {place.line for place in finding.places if place.line is not None}
    for node in file.nodes:
        if node.first <= 0 or not any(node.first <= line <= node.last for line in lines):
            continue
        file.add(node, mark=True)
        below = [n for n in file.nodes if n.path[: len(node.path)] == node.path]
        if len(below) <= SMALL + 1 and node.text is None and node.path[-1] not in POOLS:
            file.keep |= {n.path for n in below}
    if not any(node.first in lines for node in file.nodes):
        file.marked |= lines  # a comment, or a text that is not YAML
    words = set(re.findall(r"[\w./-]+", finding.message))
    last = {part for word in words for part in (word, word.rpartition(".")[2])}
    named = {word.rstrip(".,:") for word in last}
    about = [node for node in file.nodes if _is_about(node.path, finding)]
    for node in about:
        if _is_named(node, named):
            file.add(node)
    visible = {node.text for node in file.nodes if node.path in file.keep}
    numbers = {n.replace(",", "") for n in re.findall(NUMBER, finding.message)} - visible - {"1"}
    for node in about:
        flag = file.groups.get(node.path, [node])[0].text or ""
        if node.text in numbers and (re.search(SIZES, str(node.path[-1])) or re.match(SIZES, flag)):
            file.add(node)


def _add_shown(file: _File, shows: Sequence[str]) -> None:
    for node in file.nodes:
        group = file.groups.get(node.path, [node])
        name = group[0].text if node.path in file.groups else "/".join(map(str, node.path))
        if any(f"/{name}".endswith(f"/{show}") for show in shows):
            file.add(node)
            file.keep |= {n.path for n in file.nodes if n.path[: len(node.path)] == node.path}


def _is_named(node: Node, words: set[str]) -> bool:
    """Whether the message names the setting, or its value if that is a word."""
    if node.text is None:
        return False
    step = node.path[-1]
    if isinstance(step, int):
        flag = node.text.partition("=")[0]
        return flag.startswith("--") and (flag in words or flag[2:] in words)
    if step == "value" and len(node.path) > 2:
        step = str(node.path[-2])
    if re.fullmatch(r"[A-Za-z][\w./:-]{4,}", node.text) and node.text in words:
        return step not in ("name", "type") and "labels" not in node.path
    is_special = re.search(r"[-_A-Z]", step) or step in ("replicas", "gpus", "nodes", "gpu")
    return bool(is_special) and step in words


def _is_about(path: Path, finding: Finding) -> bool:
    """Whether a value belongs to a component of the finding, or to none."""
    component = component_of(path)
    if not component:
        return path[0] in ("", "DynamoGraphDeployment")
    components = {place.component for place in finding.places}
    return component in components or re.search(rf"\b{component}\b", finding.message) is not None


def component_of(path: Path) -> str:
    if path[0] == "":
        return str(path[1]) if len(path) > 1 and path[1] in (*POOLS, "frontend") else ""
    if len(path) > 3 and path[1] == "spec" and path[2] in ("components", "services"):
        return str(path[3])
    return ""


def _add_flags_of_other(first: _File, second: _File) -> None:
    """Flags by their words: their index may differ between the files."""
    for file, other in ((first, second), (second, first)):
        shown = {
            (path[:-1], tuple(n.text for n in other.groups[path]))
            for path in other.keep
            if path in other.groups
        }
        for path, group in list(file.groups.items()):
            if (path[:-1], tuple(n.text for n in group)) in shown:
                file.keep |= {node.path for node in group}


def _add_names(file: _File) -> None:
    """What says which engine and which component it is."""
    sections = {path[1] for path in file.keep if len(path) > 1 and path[0] == ""}
    if sections & {"engine", *POOLS}:
        file.keep.add(("", "engine", "kind"))
    known = {node.path for node in file.nodes}
    for path in list(file.keep):
        items = (path[:n] for n in range(2, len(path) + 1))
        file.keep |= {(*item, "name") for item in items if (*item, "name") in known}
        if path[-1] == "image":
            file.keep |= {p for p in known if p[:-1] == (*path[:-1], "command")}
        if component_of(path) and path[0] != "":
            file.keep |= {(*path[:4], "name"), (*path[:4], "type"), (*path[:4], "componentType")}
    if len({path[0] for path in file.keep}) > 1:
        file.keep |= {(path[0], "kind") for path in list(file.keep)}
        maps = {path[:2] for path in file.keep if path[0] == "ConfigMap"}
        file.keep |= {(*path, *more) for path in maps for more in (("kind",), ("metadata", "name"))}


def _cut(file: _File, *, otherwise: Sequence[Finding] = ()) -> Excerpt:
    """``otherwise``: the findings whose sections are removed, if nothing else is shown."""
    lines = file.text.splitlines()
    by_path = {node.path: node for node in file.nodes}
    kept: set[int] = set(file.marked)
    for path in file.keep:
        for length in range(1, len(path) + 1):
            node = by_path.get(path[:length])
            if node is not None:
                is_long = node.last - node.first > LONGEST_SCRIPT
                kept |= {node.first} if is_long else set(range(node.first, node.last + 1))
    kept |= set(_separators(lines, kept))
    result: list[str] = []
    marked: list[int] = []
    previous = 0
    for number in sorted(kept):
        result += _left_out(lines, previous, number)
        result.append(lines[number - 1])
        if number in file.marked:
            marked.append(len(result))
        previous = number
    result += _left_out(lines, previous, len(lines) + 1)
    result = result or [f"# without {re.sub(INDEX, '', f.place)}" for f in otherwise[:1]]
    return Excerpt(text="\n".join(result) + "\n", marked=tuple(marked))


def _separators(lines: Sequence[str], kept: Iterable[int]) -> Iterator[int]:
    """The `---` between two documents that are shown."""
    marks = [n for n, line in enumerate(lines, 1) if line == "---"]
    shown = sorted(kept)
    for mark, after in zip(marks, [*marks, len(lines) + 1][1:], strict=True):
        if any(n < mark for n in shown) and any(mark < n < after for n in shown):
            yield mark


def _left_out(lines: Sequence[str], previous: int, number: int) -> Iterator[str]:
    """A comment for the lines between two that are shown: in a list of flags, and at the end of
    a component or a section."""
    dropped = lines[previous : number - 1]
    if not dropped:
        return
    following = lines[number - 1] if number <= len(lines) else ""
    is_item = following.lstrip().startswith("- ") and dropped[-1].lstrip().startswith("- ")
    if is_item and _indent(following) == _indent(dropped[-1]) and ": " not in following:
        yield " " * _indent(following) + LEFT_OUT
    elif previous and _ends_block(lines[previous - 1], dropped[0], following):
        yield " " * _indent(dropped[0]) + LEFT_OUT


def _ends_block(last: str, dropped: str, following: str) -> bool:
    """Whether a section ends in the lines that are left out, and more of it was there."""
    return _indent(dropped) > _indent(following) and dropped.strip() != "---" and bool(last)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
