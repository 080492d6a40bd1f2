"""A container → the processes it starts, from its command, args, environment and files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from penstock.errors import ProblemKind
from penstock.manifests import shell
from penstock.manifests.configmaps import ConfigMaps
from penstock.manifests.deployment import Launch
from penstock.manifests.environment import (
    SHORTEN,
    SHORTEN_ONE,
    Environment,
    TooLongError,
    TooManyCharactersError,
    read_environment,
)
from penstock.manifests.mounts import Mounts, read_mounts
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
            _launch(process, environment, unresolved),
            unexpanded=unexpanded,
            place=container.cursor.place,
        )
        for process in processes
    )
    return Started(launches=launches, mounts=mounts)


def _processes(
    argv: tuple[str, ...], context: shell.Context, container: Container
) -> tuple[shell.Process, ...]:
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
        return (), notes
    except TooManyCharactersError as error:
        container.cursor.problem(str(error), SHORTEN)
        return (), notes
    return argv, notes


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


def _launch(process: shell.Process, environment: Environment, notes: tuple[str, ...]) -> Launch:
    return Launch(
        argv=process.argv,
        env=process.env,
        secrets=tuple(environment.secrets),
        cwd=process.cwd,
        files=process.files,
        unknown_files=process.unknown_files,
        unknown_variables=tuple(environment.unknown),
        has_unread_variables=environment.has_unread_variables,
        unresolved=tuple(dict.fromkeys((*process.unresolved, *notes))),
        is_conditional=process.is_conditional,
        shell=process.shell,
    )
