"""A container's environment as the kubelet creates it, as far as the manifests define it.

Order and `$(VAR)` expansion follow kubernetes/pkg/kubelet/kubelet_pods.go and
third_party/forked/golang/expansion: `envFrom` comes first, then `env` in order; the last value of a
name wins.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from penstock.manifests.configmaps import ConfigMaps, missing_key
from penstock.manifests.documents import Cursor

LONGEST = 131_072  # characters: the longest argument or variable that Linux passes to a program
MOST_CHARACTERS = 2 * 2**20  # of all arguments and variables of a program: Linux' ARG_MAX
SHORTEN_ONE = "Write the value out, or move it to a file in a ConfigMap."
SHORTEN = "Remove some, or move the long values to a file in a ConfigMap."
REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")


TOO_LONG = f"expands to more than {LONGEST} characters, the longest that Linux passes"
TOO_MANY = (
    f"the arguments and variables expand to more than {MOST_CHARACTERS} characters in total, the "
    "most that Linux passes to a program"
)


class TooLongError(Exception):
    """No process could get the expanded text."""


class TooManyCharactersError(Exception):
    """No process could get all the arguments and variables."""


@dataclass(kw_only=True)
class Environment:
    """The variables of one container."""

    known: dict[str, str] = field(default_factory=dict)
    # Name → why only the cluster knows the value.
    unknown: dict[str, str] = field(default_factory=dict)
    # Names of the Secrets from which values come.
    secrets: list[str] = field(default_factory=list)
    # Whether variables come from a ConfigMap that is not in the file.
    has_unread_variables: bool = False
    # What else only the cluster knows, for the reader.
    notes: list[str] = field(default_factory=list)
    # The sum of the lengths of all values.
    characters: int = 0

    def set(self, name: str, value: str) -> None:
        """Raises TooManyCharactersError."""
        characters = self.characters + len(value) - len(self.known.get(name, ""))
        if characters > MOST_CHARACTERS:
            raise TooManyCharactersError(TOO_MANY)
        self.unknown.pop(name, None)
        self.known[name], self.characters = value, characters

    def hide(self, name: str, why: str) -> None:
        self.characters -= len(self.known.pop(name, ""))
        self.unknown[name] = why

    def secret(self, name: str) -> None:
        if name not in self.secrets:
            self.secrets.append(name)

    def expand(self, text: str) -> str:
        """``text`` with its `$(VAR)` replaced; unknown variables are kept and noted.

        Raises TooLongError.
        """
        expanded = expand(text, self._lookup)
        if len(expanded) > LONGEST:
            raise TooLongError(TOO_LONG)
        return expanded

    def expand_all(self, texts: Iterable[str]) -> Iterator[str]:
        """The arguments of a program that gets these variables.

        Raises TooLongError and TooManyCharactersError.
        """
        characters = self.characters
        for text in texts:
            expanded = self.expand(text)
            characters += len(expanded)
            if characters > MOST_CHARACTERS:
                raise TooManyCharactersError(TOO_MANY)
            yield expanded

    def _lookup(self, name: str) -> str | None:
        if name in self.unknown:
            self.note(f"$({name}): {self.unknown[name]}")
        return self.known.get(name)

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def expand(text: str, lookup: Callable[[str], str | None]) -> str:
    """Replace `$(VAR)` as Kubernetes does: `$$` is one `$`, an unknown name is kept.

    Raises TooLongError: variables that refer to each other double their length with each step.
    """
    length = len(text)

    def replaced(match: re.Match[str]) -> str:
        nonlocal length
        if match[0] == "$$":
            return "$"
        text = lookup(match[1])
        length += 0 if text is None else len(text)
        if length > LONGEST:
            raise TooLongError(TOO_LONG)
        return match[0] if text is None else text

    # Without a `)`, each `$(` would be searched to the end of the text.
    last = text.rfind(")") + 1
    return REFERENCE.sub(replaced, text[:last]) + text[last:].replace("$$", "$")


@dataclass(frozen=True, kw_only=True)
class EnvSources:
    """The sources of one container's variables."""

    env_from: Cursor
    # Lowest precedence first.
    env: tuple[Cursor, ...]
    # `envFromSecret` of v1alpha1
    secrets: Iterable[Cursor] = ()


def read_environment(sources: EnvSources, maps: ConfigMaps, namespace: str) -> Environment:
    environment = Environment()
    reader = _Reader(environment, maps, namespace)
    for name in sources.secrets:
        reader.add_secret(name)
    parts: list[tuple[Callable[[Cursor], None], Cursor]] = []
    parts += [(reader.add_source, source) for source in sources.env_from.items()]
    parts += [(reader.add_variable, e) for entries in sources.env for e in entries.items()]
    for add, part in parts:
        try:
            add(part)
        except TooManyCharactersError as error:
            part.problem(str(error), SHORTEN)
            break
    return environment


@dataclass(frozen=True)
class _Reader:
    environment: Environment
    maps: ConfigMaps
    namespace: str

    def add_secret(self, name: Cursor) -> None:
        if (text := name.text()) is not None:
            self.environment.secret(text)

    def add_source(self, source: Cursor) -> None:
        prefix = source["prefix"].text() or ""
        self.add_secret(source.at("secretRef", "name"))
        name = source.at("configMapRef", "name").text()
        if name is None:
            return
        data = self.maps.find(name, self.namespace)
        if data is None:
            self.environment.has_unread_variables = True
            self.environment.note(f"the variables of ConfigMap {name}, which is not in the file")
            return
        for key, entry in data.entries():
            if isinstance(entry.value, str):
                self.environment.set(prefix + key, entry.value)

    def add_variable(self, entry: Cursor) -> None:
        name = entry["name"].text()
        if name is None and not entry["name"].is_absent:
            return
        if not name:
            entry.problem("an environment variable has no name", "Set its name.")
            return
        text, source = entry["value"].text(), entry["valueFrom"]
        if text and not source.is_absent:
            entry.problem(f"{name} has both value and valueFrom", "Keep one of them.")
        if source.is_absent:
            try:
                self.environment.set(name, self.environment.expand(text or ""))
            except TooLongError as error:
                entry["value"].problem(f"{name} {error}", SHORTEN_ONE)
                self.environment.hide(name, str(error))
        else:
            self._from(name, source)

    def _from(self, name: str, source: Cursor) -> None:
        if not source["configMapKeyRef"].is_absent:
            self._from_configmap(name, source["configMapKeyRef"])
        elif not source["secretKeyRef"].is_absent:
            secret = source.at("secretKeyRef", "name").text() or "?"
            self.environment.secret(secret)
            self.environment.hide(name, f"a value of the Secret {secret}")
        elif not source["fieldRef"].is_absent:
            field_path = source.at("fieldRef", "fieldPath").text() or "?"
            self.environment.hide(name, f"the pod's {field_path}")
        elif not source["resourceFieldRef"].is_absent:
            resource = source.at("resourceFieldRef", "resource").text() or "?"
            self.environment.hide(name, f"the container's {resource}")
        else:
            source.problem(
                f"{name} has an unknown valueFrom: {', '.join(source.mapping())}",
                "Use configMapKeyRef, secretKeyRef, fieldRef or resourceFieldRef.",
            )

    def _from_configmap(self, name: str, reference: Cursor) -> None:
        map_name, key = reference["name"].text(), reference["key"].text()
        if map_name is None or key is None:
            reference.problem("configMapKeyRef needs name and key", "Set both.")
            return
        data = self.maps.find(map_name, self.namespace)
        if data is None:
            self.environment.hide(name, f"{key} of ConfigMap {map_name}, which is not in the file")
        elif isinstance(text := data[key].value, str):
            self.environment.set(name, text)
        elif not reference["optional"].flag():
            missing_key(reference["key"], key, map_name, data)
