"""The ConfigMaps of a text, by namespace and name; one that is not there is unknown, not empty."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from penstock.manifests.cursor import Cursor
from penstock.manifests.documents import Document


@dataclass(frozen=True)
class ConfigMaps:
    """``by_name`` holds each ConfigMap's ``data``; the cursor keeps file and line of its keys."""

    namespace: str
    by_name: Mapping[tuple[str, str], Cursor] = field(default_factory=dict)

    def find(self, name: str, namespace: str) -> Cursor | None:
        return self.by_name.get((namespace, name))


def collect(documents: tuple[Document, ...], namespace: str) -> ConfigMaps:
    found: dict[tuple[str, str], Cursor] = {}
    for document in documents:
        root = Cursor.at_root(document)
        if root["kind"].value != "ConfigMap":
            continue
        name = root.at("metadata", "name").text()
        if name is None:
            root.problem("a ConfigMap without metadata.name", "name it")
            continue
        key = (root.at("metadata", "namespace").text() or namespace, name)
        if key in found:
            root["metadata"].problem(f"a second ConfigMap {name}", "keep one of them")
        found.setdefault(key, root["data"])
        for _, value in root["data"].entries():
            value.text()  # reports what is no string: Kubernetes refuses it
    return ConfigMaps(namespace, found)


def selected(reference: Cursor, maps: ConfigMaps, namespace: str) -> dict[str, Cursor] | None:
    """Relative path → text of a ConfigMap volume (`name`, `items`); None when it is not here."""
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
            item.problem("an item needs key and path")
        elif ".." in path.split("/") or path.startswith("/"):
            item.problem(f"path {path!r} must stay inside the volume")
        elif isinstance(data[key].value, str):
            yield path, data[key]
        elif not reference["optional"].flag():
            missing_key(item["key"], key, name, data)


def missing_key(where: Cursor, key: str, name: str, data: Cursor) -> None:
    keys = ", ".join(data.mapping()) or "none"
    where.problem(f"the ConfigMap {name} has no key {key!r}", f"its keys are: {keys}")
