"""The ConfigMaps of a text; the content of a missing one is unknown, not empty."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from penstock.manifests.documents import Cursor, Document

LONGEST_SHOWN = 80  # characters


@dataclass(frozen=True)
class ConfigMaps:
    """The ConfigMaps of a text."""

    namespace: str
    # (namespace, name) → its `data`.
    by_name: Mapping[tuple[str, str], Cursor] = field(default_factory=dict)

    def find(self, name: str, namespace: str) -> Cursor | None:
        return self.by_name.get((namespace, name))


def collect(documents: tuple[Document, ...], namespace: str) -> ConfigMaps:
    by_name: dict[tuple[str, str], Cursor] = {}
    for document in documents:
        root = Cursor.at_root(document)
        if root["kind"].value != "ConfigMap":
            continue
        name = root.at("metadata", "name").text()
        if name is None:
            root.problem("the ConfigMap has no metadata.name", "Set its name.")
            continue
        key = (root.at("metadata", "namespace").text() or namespace, name)
        if key in by_name:
            root["metadata"].problem(f"duplicate ConfigMap {name}", "Keep one of them.")
        by_name.setdefault(key, root["data"])
        for file_name, entry in root["data"].entries():
            entry.text()  # reports a value of another type, which Kubernetes rejects
            _check_key(entry, file_name)
    return ConfigMaps(namespace, by_name)


def _check_key(entry: Cursor, key: str) -> None:
    """Each key becomes a file's name (IsConfigMapKey, k8s.io/apimachinery/pkg/util/validation)."""
    if re.fullmatch(r"[-._a-zA-Z0-9]{1,253}", key) and key != "." and not key.startswith(".."):
        return
    excerpt = key if len(key) <= LONGEST_SHOWN else f"{key[:LONGEST_SHOWN]}…"
    entry.problem(
        f"the ConfigMap's key {excerpt!r} is not a valid file name",
        "Use at most 253 letters, digits, `-`, `_` and `.`, without `..` at the beginning.",
    )


def selected(reference: Cursor, maps: ConfigMaps, namespace: str) -> dict[str, Cursor] | None:
    """Relative path → text of a ConfigMap volume; None if the text has no such ConfigMap."""
    name = reference["name"].text()
    data = maps.find(name, namespace) if name else None
    if data is None:
        return None
    if reference["items"].is_absent:
        return {key: value for key, value in data.entries() if isinstance(value.value, str)}
    return dict(_items(reference, data, name or ""))


def _items(reference: Cursor, data: Cursor, name: str) -> Iterator[tuple[str, Cursor]]:
    for item in reference["items"].items():
        key, path = item["key"].text(), item["path"].text()
        if key is None or path is None:
            item.problem("an item of a volume needs key and path", "Set both.")
        elif ".." in path.split("/") or path.startswith("/"):
            item.problem(
                f"path {path!r} leads out of the volume", "Use a relative path without `..`."
            )
        elif isinstance(data[key].value, str):
            yield path, data[key]
        elif not reference["optional"].flag():
            missing_key(item["key"], key, name, data)


def missing_key(where: Cursor, key: str, name: str, data: Cursor) -> None:
    keys = ", ".join(data.mapping()) or "none"
    where.problem(f"the ConfigMap {name} has no key {key!r}", f"Use one of its keys: {keys}.")
