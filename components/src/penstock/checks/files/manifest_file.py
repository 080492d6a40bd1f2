"""A file of Kubernetes manifests as a checked file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from shlex import join
from typing import Any

from penstock.checks.files.adapt_fix import adapt_config, replaced_flag
from penstock.checks.files.place import Place, dump, put
from penstock.checks.finding import Fix, steps_of
from penstock.engines.settings import Location, Path
from penstock.manifests.deployment import Component, KnownConfig, NoConfig, UnknownConfig
from penstock.manifests.documents import Cursor
from penstock.manifests.engine_files import ENGINE_FILE
from penstock.manifests.pods import Container, Pod
from penstock.manifests.read import Manifest
from penstock.serving.deployment import FRONTEND
from penstock.strict_yaml.document import read_documents
from penstock.strict_yaml.places import Node, Position, node_at, position_of

# Fields that v1alpha1 has at a place of its own.
ALPHA: Mapping[Path, Path] = {
    ("sharedMemorySize",): ("sharedMemory", "size"),
    ("type",): ("componentType",),
    ("metadata",): ("extraPodMetadata",),
    ("main", "env"): ("envs",),
    ("main", "resources"): ("resources",),
}
# Keys of v1alpha1's `resources`; all others are below `custom`.
ALPHA_AMOUNTS = {"nvidia.com/gpu": ("gpu",), "cpu": ("cpu",), "memory": ("memory",)}


def manifest_path(path: Path, pod: Pod) -> Path:
    """The field's path in its document."""
    top = pod.cursor.path
    if "services" in top and (service_path := _in_service(path, pod)) is not None:
        return (*top, *service_path)
    if path[0] == "main":
        return (*pod.containers[0].cursor.path, *path[1:])
    if path[0] == "pod":
        return (*pod.volumes.path[:-1], *path[1:])
    if path[0] == "metadata":
        return (*top, "podTemplate", *path)
    return (*top, *path)


def _in_service(path: Path, pod: Pod) -> Path | None:
    """The field's path below a v1alpha1 service; None if it is in the pod as in v1beta1."""
    main = pod.containers[0].cursor
    if path[:2] == ("metadata", "annotations") and not pod.cursor["annotations"].is_absent:
        return path[1:]
    if path[:2] == ("main", "env") and not main["env"].is_absent:
        return None
    if path[:2] == ("main", "resources"):
        if pod.resources.is_absent and not main["resources"].is_absent:
            return None
        if len(path) > len(("main", "resources", "limits")):
            amount = str(path[3])
            return (*path[1:3], *ALPHA_AMOUNTS.get(amount, ("custom", amount)))
    for length in range(len(path), 0, -1):
        if (place := ALPHA.get(path[:length])) is not None:
            return (*place, *path[length:])
    return None


@dataclass(frozen=True)
class WordList:
    """The words of a container's `args` or `command`, to find flags in them.

    There may be thousands of words and as many findings: the words are read once.
    """

    cursor: Cursor

    def find(self, flag: str) -> Cursor | None:
        """The first word that is the flag or its `flag=value`, or a script with the flag."""
        in_script = next(
            (at for at, text in self._scripts if position_in(text, flag) is not None), None
        )
        positions = [
            at for at in (self._by_flag.get(_with_underscores(flag)), in_script) if at is not None
        ]
        if not positions:
            return None
        at = min(positions)
        return Cursor(self.cursor.document, self._values[at], (*self.cursor.path, at))

    @property
    def _values(self) -> list[object]:
        return self.cursor.value if isinstance(self.cursor.value, list) else []

    @cached_property
    def _words(self) -> tuple[tuple[int, str], ...]:
        return tuple((at, word) for at, word in enumerate(self._values) if isinstance(word, str))

    @cached_property
    def _by_flag(self) -> dict[str, int]:
        """Flag → index of its first word."""
        words = reversed(self._words)
        return {_with_underscores(word.split("=")[0]): at for at, word in words}

    @cached_property
    def _scripts(self) -> tuple[tuple[int, str], ...]:
        return tuple((at, word) for at, word in self._words if " " in word)


def position_in(text: str, flag: str) -> int | None:
    """Where a script has a flag, in one of the spellings that argparse of the engines accepts."""
    words = "[-_]".join(map(re.escape, re.split("[-_]", flag[2:])))
    match = re.search(rf"{re.escape(flag[:2])}{words}(?![\w.-])", text)
    return match.start() if match else None


def _with_underscores(flag: str) -> str:
    """`--block_size` of `--block-size`."""
    return f"--{flag[2:].replace('-', '_')}" if flag.startswith("--") else flag


# The variables that have the same effect as a frontend flag which fixes set.
VARIABLES = {
    "--migration-limit": "DYN_MIGRATION_LIMIT",
    "--router-mode": "DYN_ROUTER_MODE",
    "--router-replica-sync": "DYN_ROUTER_REPLICA_SYNC",
}


@dataclass(frozen=True)
class ManifestFile:
    manifest: Manifest
    # The text from which it was read.
    text: str

    @cached_property
    def _lines(self) -> list[str]:
        return self.text.splitlines()

    @property
    def suppressions(self) -> Mapping[str, str]:
        return {}

    def locate(self, location: Location) -> Place:
        """As in `CheckedFile`; paths in a manifest are long, so the component is the subject."""
        known = location.component if location.component in self.manifest.pods else ""
        return replace(self._place_of(location), subject=known)

    def _place_of(self, location: Location) -> Place:
        manifest = self.manifest
        if location.what == "graph":
            return Place(None, ".".join(map(str, location.path)))
        if location.what == "document":
            root = manifest.documents[int(location.path[0])]
            return self._in_document(root, location.path[1:])
        if location.component not in manifest.pods:
            return _place(Cursor(manifest.root.document, None, location.path))
        if location.what == "config":
            return self._config_key(location)
        if location.what in ("args", "env"):
            return self._in_containers(location)
        path = manifest_path(location.path, manifest.pods[location.component])
        return _place(Cursor(manifest.root.document, None, path))

    def _config_key(self, location: Location) -> Place:
        """A key of the engine's file: in its ConfigMap, else at the component that writes it."""
        pod = self.manifest.pods[location.component]
        config = self.manifest.deployment.component(location.component).engine_config
        dotted = ".".join(str(step) for step in location.path)
        if not isinstance(config, KnownConfig):
            main = pod.containers[0].cursor
            is_flag = isinstance(config, NoConfig) and main["args"].value
            place = _place(main["args"] if is_flag else main)
            return replace(place, path=f"{place.path}: {dotted}")
        kind, _, rest = config.place.partition("/")
        name, _, key = rest.rpartition("/")
        if kind == "ConfigMap":
            for root in self.manifest.documents:
                if root["kind"].value == kind and root.at("metadata", "name").value == name:
                    line, column = self._inner_position(root, key, location) or (None, None)
                    return Place(line, f"{config.place}: {dotted}", column=column)
        return replace(_place(pod.containers[0].cursor), path=f"{config.path}: {dotted}")

    def _in_document(self, root: Cursor, path: Path) -> Place:
        """A place in any object, and in the YAML text of a ConfigMap's key: (data, key, …)."""
        head, inner = path[:2], path[2:]
        is_text = head[:1] == ("data",) and isinstance(root.at("data", str(head[-1])).value, str)
        if not inner or not is_text:
            return _place(Cursor(root.document, None, path))
        location = Location("", "document", inner)
        line, column = self._inner_position(root, str(head[1]), location) or (None, None)
        dotted = f"{'.'.join(map(str, head))}: {'.'.join(map(str, inner))}"
        return Place(line, dotted, column=column)

    def _inner_position(self, root: Cursor, key: str, location: Location) -> Position | None:
        """The position of a key inside a `|` block; that of the block if the key is not in it."""
        block = position_of(root.document.node, ("data", key))
        node = node_at(root.document.node, ("data", key))
        if block is None or node is None or node.style != "|":
            return block
        tree = _engine_file(node.value)
        if node_at(tree, location.path[:1]) is None:
            return block
        line, column = position_of(tree, location.path) or (1, 1)
        here = self._lines[block.line + line - 1 :][:1]
        inner = node.value.splitlines()[line - 1]
        indentation = len(here[0]) - len(inner) if here and here[0].endswith(inner) else 0
        return Position(block.line + line, indentation + column)

    def _in_containers(self, location: Location) -> Place:
        """A variable or a flag: in the list that has it, else at the container."""
        pod = self.manifest.pods[location.component]
        find = _variable if location.what == "env" else self._argument
        for container in pod.containers:
            if (cursor := find(container, location)) is not None:
                line, column = self._in_script(cursor, location) or (None, None)
                return Place(line, cursor.place, column=column)
        main = pod.containers[0].cursor
        return _place(main[location.what] if main[location.what].value else main)

    def _argument(self, container: Container, location: Location) -> Cursor | None:
        flag = str(location.path[0]) if location.path else ""
        places = (words.find(flag) for words in self._words_of(container))
        return next((word for word in places if word is not None), None)

    def _words_of(self, container: Container) -> tuple[WordList, ...]:
        place = container.cursor.place
        if place not in self._words:
            self._words[place] = tuple(WordList(container.cursor[k]) for k in ("args", "command"))
        return self._words[place]

    @cached_property
    def _words(self) -> dict[str, tuple[WordList, ...]]:
        """By place of the container."""
        return {}

    def _in_script(self, cursor: Cursor, location: Location) -> Position | None:
        """The position of an argument or variable; that of a flag inside a `|` block, which begins
        on the line after its key."""
        node = node_at(cursor.document.node, cursor.path)
        position = cursor.position
        is_block = node is not None and node.style == "|"
        if location.what != "args" or not location.path or not is_block or position is None:
            return position
        flag = str(location.path[0])
        lines = enumerate(str(cursor.value).splitlines(), position.line + 1)
        line = next((line for line, text in lines if position_in(text, flag) is not None), None)
        column = position_in(self._lines[line - 1], flag) if line is not None else None
        return position if line is None or column is None else Position(line, column + 1)

    def adapt(self, fix: Fix, location: Location) -> Fix:
        if location.component not in self.manifest.pods:
            return fix
        component = self.manifest.deployment.component(location.component)
        has_file = isinstance(component.engine_config, (KnownConfig, UnknownConfig))
        # A null in the engine's file of a manifest becomes the text `None`.
        fix = adapt_config(fix, location, component, has_file=has_file, accepts_null=False)
        is_in_script = any(launch.shell for launch in component.launches)
        if fix.args and is_in_script and not self._passes_args(component):
            return replace(fix.and_also(f"Set `{join(fix.args)}` in the launch script."), args=())
        if fix.args and fix.args[0] in VARIABLES and self._runs_default_frontend(location):
            name, text = VARIABLES[fix.args[0]], (*fix.args, "true")[1]
            return replace(fix, args=(), env={**fix.env, name: text})
        if existing := replaced_flag(fix, component):
            fix = fix.and_also(f"Replace the existing `{existing}`.")
            return replace(fix, replaces=existing)
        return fix

    def _passes_args(self, component: Component) -> bool:
        """Whether the script passes the container's args on, as `exec python3 "$@"` does."""
        arguments = self.manifest.pods[component.name].containers[0].arguments
        return bool(arguments) and all(
            launch.argv[-len(arguments) :] == arguments for launch in component.launches
        )

    def _runs_default_frontend(self, location: Location) -> bool:
        """Whether the operator writes command and args: args alone would be Python's."""
        pod = self.manifest.pods.get(location.component)
        if pod is None or not pod.containers[0].defaults_to_frontend:
            return False
        main = pod.containers[0].cursor
        return not (main["command"].value or main["args"].value)

    def paste(self, fix: Fix, location: Location) -> str:
        """A part for each object that changes, below a comment that names the object."""
        config: dict[str, Any] = {}
        for key, setting in fix.config.items():
            put(config, self._as_spelled(key, location), setting)
        deployment: dict[str, Any] = {}
        for key, value in fix.deployment.items():
            put(deployment, steps_of(key), value)
        component: dict[str, Any] = {}
        fields = {steps_of(key): value for key, value in fix.fields.items()}
        env = [{"name": n, "value": text} for n, text in fix.env.items() if text is not None]
        if env:
            fields["main", "env"] = env
        if fix.args:
            module = ("-m", FRONTEND) if self._runs_default_frontend(location) else ()
            fields["main", "args"] = [*module, *fix.args]
        for path, value in fields.items():
            put(component, self._below_component(path, location), value)
        parts = {
            self._name_of_config(location): config,
            "the deployment": deployment,
            f"component {location.component}": component,
        }
        return "\n".join(f"# in {name}\n{dump(tree)}" for name, tree in parts.items() if tree)

    def _as_spelled(self, key: str, location: Location) -> list[str]:
        """A key spelled as in the engine's file: vLLM and SGLang accept `_` for `-`."""
        is_known = location.component in self.manifest.pods
        config = (
            self.manifest.deployment.component(location.component).engine_config
            if is_known
            else None
        )
        existing = list(config.values) if isinstance(config, KnownConfig) else []
        if key in existing:
            return [key]
        head, *rest = key.split(".")
        same = [str(k) for k in existing if str(k).replace("_", "-") == head.replace("_", "-")]
        return [(same or [head])[0], *rest]

    def _name_of_config(self, location: Location) -> str:
        if location.component not in self.manifest.pods:
            return "the engine's configuration file"
        config = self.manifest.deployment.component(location.component).engine_config
        if isinstance(config, KnownConfig):
            return config.place
        return f"the engine's configuration file of {location.component}"

    def _below_component(self, path: Path, location: Location) -> Path:
        pod = self.manifest.pods.get(location.component)
        return manifest_path(path, pod)[len(pod.cursor.path) :] if pod else path


@lru_cache(maxsize=4)  # each finding in the file asks for it
def _engine_file(text: str) -> Node | None:
    roots, _ = read_documents(text, "", ENGINE_FILE)
    return roots[0] if roots else None


def _place(cursor: Cursor) -> Place:
    line, column = cursor.position or (None, None)
    return Place(line, cursor.place, column=column)


def _variable(container: Container, location: Location) -> Cursor | None:
    for entries in reversed(container.env.env):
        values = entries.value if isinstance(entries.value, list) else []
        for index, entry in enumerate(values):
            if isinstance(entry, dict) and entry.get("name") == location.path[0]:
                return Cursor(entries.document, entry, (*entries.path, index))
    return None
