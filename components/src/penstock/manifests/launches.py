"""A container → the processes it starts, from its command, args, environment and files.

The files are those of ConfigMap and projected volumes; others are unknown.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from penstock.errors import ProblemKind
from penstock.manifests import shell
from penstock.manifests.configmaps import ConfigMaps, selected
from penstock.manifests.deployment import Launch
from penstock.manifests.documents import Cursor
from penstock.manifests.environment import (
    SHORTEN,
    SHORTEN_ONE,
    Environment,
    TooLongError,
    TooManyCharactersError,
    read_environment,
)
from penstock.manifests.pods import Container, Pod

MOST_CHARACTERS = 8 * 2**20  # of the arguments and variables of all containers of a file
MOST_PROCESSES = 200  # of all containers of a file


@dataclass(frozen=True, kw_only=True)
class Started:
    """The launches of one container, and the files that it can read."""

    launches: tuple[Launch, ...]
    mounts: Mounts


@dataclass
class Expanded:
    """What the containers of one file get and start."""

    characters: int = 0
    processes: int = 0

    @property
    def is_too_large(self) -> bool:
        return self.characters > MOST_CHARACTERS or self.processes > MOST_PROCESSES

    def add(self, container: Container, characters: int, processes: int = 0) -> None:
        """Count, and report the first container with which the file has too much."""
        was_too_large = self.is_too_large
        self.characters += characters
        self.processes += processes
        if was_too_large:
            return
        if self.processes > MOST_PROCESSES:
            container.cursor.problem(
                f"the containers up to here start {self.processes} processes; the limit for a file "
                f"is {MOST_PROCESSES}",
                "Split the file, or start fewer processes.",
            )
        elif self.characters > MOST_CHARACTERS:
            container.cursor.problem(
                "the arguments and variables of the containers up to here expand to more than "
                f"{MOST_CHARACTERS} characters in total, the limit for a file",
                "Split the file, or write shorter values.",
            )


def read_container(
    pod: Pod, container: Container, maps: ConfigMaps, namespace: str, expanded: Expanded
) -> Started:
    """The launches of a container; none if only the image decides what runs."""
    if expanded.is_too_large:
        return Started(launches=(), mounts=Mounts())
    mounts = read_mounts(pod, container, maps, namespace)
    environment = read_environment(container.env, maps, namespace)
    argv, notes = _argv(container, environment)
    expanded.add(container, environment.characters + sum(map(len, argv)))
    unexpanded = tuple(_unexpanded(argv, environment))
    if not argv:
        return Started(launches=(), mounts=mounts)
    context = shell.Context(
        env=environment.known,
        unknown=environment.unknown,
        files=mounts.texts(),
        cwd=container.cursor["workingDir"].text(),
    )
    processes = _processes(argv, context, container)
    by_script = [process.argv for process in processes if process.shell]
    expanded.add(container, sum(len(t) for argv in by_script for t in argv), len(processes))
    if expanded.is_too_large:
        return Started(launches=(), mounts=mounts)
    hidden = (f"{name}: {why}" for name, why in environment.unknown.items())
    unresolved = (*notes, *map(_unexpanded_note, unexpanded), *environment.notes, *hidden)
    launches = tuple(
        replace(
            process,
            secrets=tuple(environment.secrets),
            unknown_variables=tuple(environment.unknown),
            has_unread_variables=environment.has_unread_variables,
            unexpanded=unexpanded,
            unresolved=tuple(dict.fromkeys((*process.unresolved, *unresolved))),
            place=container.cursor.place,
        )
        for process in processes
    )
    return Started(launches=launches, mounts=mounts)


def _processes(
    argv: tuple[str, ...], context: shell.Context, container: Container
) -> tuple[Launch, ...]:
    why = ""
    try:
        processes = shell.start(argv, context)
    except shell.UnknownError as error:
        processes, why = (), f" ({error})"
    if not processes:
        container.cursor.problem(
            f"command and args start no process that penstock can find{why}",
            "End the script with the command that serves, such as `exec python3 -m dynamo.vllm …`",
            ProblemKind.UNDECIDED,
        )
    return processes


def _argv(container: Container, environment: Environment) -> tuple[tuple[str, ...], list[str]]:
    """Command and args with `$(VAR)` replaced, and notes about them."""
    command, arguments = container.command, container.arguments
    notes = []
    if container.has_default_shell and not any(c.isspace() for c in "".join(arguments[:1])):
        # Not a script: read what the author meant, so that it is checked too (PS769, PS771).
        command = ()
    if not command and arguments:
        notes.append("no command: the image's entrypoint gets these arguments")
    try:
        argv = tuple(environment.expand_all((*command, *arguments)))
    except TooLongError as error:
        container.cursor.problem(f"an argument {error}", SHORTEN_ONE)
    except TooManyCharactersError as error:
        container.cursor.problem(str(error), SHORTEN)
    else:
        return argv, notes
    return (), notes


def _unexpanded(argv: tuple[str, ...], environment: Environment) -> Iterator[str]:
    """The `${VAR}` and `$(VAR)` that neither a shell nor the kubelet replaces."""
    if shell.is_shell(argv):
        return
    for part in argv:
        for reference in shell.references(part):
            if reference.startswith("$(") and reference[2:-1] in environment.unknown:
                continue  # `expand` has noted it
            yield reference


def _unexpanded_note(reference: str) -> str:
    return f"{reference}: nothing expands it, because no shell runs and no such variable is set"


@dataclass(frozen=True)
class Mounts:
    """What is mounted into one container."""

    # Absolute path → the ConfigMap key with the text.
    files: dict[str, Cursor] = field(default_factory=dict)
    # Mount path → which volume it is, of every mount.
    volumes: dict[str, str] = field(default_factory=dict)

    def texts(self) -> dict[str, str]:
        return {path: str(cursor.value) for path, cursor in self.files.items()}

    def why_unknown(self, path: str) -> str:
        """Where a file is that the manifests do not contain."""
        if not path.startswith("/"):
            return "it is in the image (a relative path without a workingDir)"
        above = [mount for mount in self.volumes if _is_in(path, mount)]
        if above:
            return f"it is on {self.volumes[max(above, key=len)]}"
        return "it is in the image"


def _is_in(path: str, mount: str) -> bool:
    return path == mount or path.startswith(mount.rstrip("/") + "/")


def read_mounts(pod: Pod, container: Container, maps: ConfigMaps, namespace: str) -> Mounts:
    mounts = Mounts()
    volumes = {volume["name"].text(): volume for volume in pod.volumes.items()}
    for mount in pod.mounted.items():
        if (path := mount["mountPoint"].text()) is not None:
            mounts.volumes[path] = f"the volume {mount['name'].text()}"
    for mount in container.cursor["volumeMounts"].items():
        path = mount["mountPath"].text()
        if path is None:
            mount.problem("a volume mount has no mountPath", "Set its mountPath.")
            continue
        _mount(mounts, mount, posixpath.normpath(path), volumes, maps, namespace)
    return mounts


def _mount(
    mounts: Mounts,
    mount: Cursor,
    path: str,
    volumes: dict[str | None, Cursor],
    maps: ConfigMaps,
    namespace: str,
) -> None:
    name = mount["name"].text()
    volume = volumes.get(name)
    sub_path = mount["subPath"].text() or ""
    if volume is not None:
        for relative, cursor in _contents(volume, maps, namespace):
            at = _place(path, relative, sub_path)
            if at is not None:
                mounts.files[at] = cursor
    mounts.volumes[path] = _describe(name, volume)


def _place(path: str, relative: str, sub_path: str) -> str | None:
    """The path at which a file of a volume is mounted; `subPath` is the root of the mount."""
    if not sub_path:
        return posixpath.join(path, relative)
    sub_path = posixpath.normpath(sub_path)
    if relative == sub_path:
        return path
    if relative.startswith(sub_path + "/"):
        return posixpath.join(path, relative[len(sub_path) + 1 :])
    return None


def _contents(volume: Cursor, maps: ConfigMaps, namespace: str) -> Iterator[tuple[str, Cursor]]:
    sources = [volume["configMap"]]
    sources += [source["configMap"] for source in volume.at("projected", "sources").items()]
    for source in sources:
        if not source.is_absent:
            yield from (selected(source, maps, namespace) or {}).items()


def _describe(name: str | None, volume: Cursor | None) -> str:
    if volume is None:
        return f"the volume {name}"
    for key, source in volume.mapping().items():
        if key == "name" or not isinstance(source, dict):
            continue
        target = source.get("claimName") or source.get("name") or source.get("path")
        return f"the volume {name} ({key}{f' {target}' if target else ''})"
    return f"the volume {name}"
