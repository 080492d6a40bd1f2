"""One container to the processes it starts: command, args, environment, files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.manifests import shell
from penstock.manifests.configmaps import ConfigMaps
from penstock.manifests.deployment import Launch
from penstock.manifests.environment import Environment, read_environment
from penstock.manifests.mounts import Mounts, read_mounts
from penstock.manifests.pods import Container, Pod

_FRONTEND = ("python3", "-m", "dynamo.frontend")


@dataclass(frozen=True, kw_only=True)
class Started:
    """The launches of one container, and the files it finds in place."""

    launches: tuple[Launch, ...]
    mounts: Mounts


def read_container(pod: Pod, container: Container, maps: ConfigMaps, namespace: str) -> Started:
    """Empty launches where the image alone decides what runs."""
    mounts = read_mounts(pod, container, maps, namespace)
    environment = read_environment(container.env, maps, namespace)
    argv, notes = _argv(container, environment)
    if not argv:
        return Started(launches=(), mounts=mounts)
    surroundings = shell.Surroundings(
        env=environment.known,
        unknown=environment.unknown,
        files=mounts.texts(),
        cwd=container.cursor["workingDir"].text(),
    )
    processes = _processes(argv, surroundings, container)
    every = (*notes, *environment.notes, *_hidden(environment))
    place = container.cursor.place
    launches = tuple(_launch(process, environment, every, place) for process in processes)
    return Started(launches=launches, mounts=mounts)


def _processes(
    argv: tuple[str, ...], surroundings: shell.Surroundings, container: Container
) -> tuple[shell.Process, ...]:
    why = ""
    try:
        processes = shell.start(argv, surroundings)
    except shell.UnknownError as error:
        processes, why = (), f" ({error})"
    if not processes:
        container.cursor.problem(
            f"no process to be found in its command and args{why}",
            "let the script end in the command that runs, such as `exec python3 -m dynamo.vllm …`",
        )
    return processes


def _argv(container: Container, environment: Environment) -> tuple[tuple[str, ...], list[str]]:
    """Command and args with `$(VAR)` replaced, and what stays open about them."""
    command = container.cursor["command"].texts() or ()
    arguments = container.cursor["args"].texts() or ()
    notes = []
    if not command and container.defaults_to_frontend:
        command, arguments = (_FRONTEND[:1], arguments) if arguments else (_FRONTEND, ())
    elif not command and arguments:
        notes.append("no command: the image's entrypoint gets these arguments")
    argv = tuple(environment.expand(part) for part in (*command, *arguments))
    return argv, [*notes, *_left_over(argv, environment)]


def _left_over(argv: tuple[str, ...], environment: Environment) -> Iterator[str]:
    """`${VAR}` and `$(VAR)` that no shell and no kubelet replaces reach the program as text."""
    if shell.is_shell(argv):
        return
    for part in argv:
        for reference in shell.references(part):
            if reference.startswith("$(") and reference[2:-1] in environment.unknown:
                continue  # `expand` has noted it
            yield f"{reference}: nothing replaces it, the launch has no shell and no such variable"


def _hidden(environment: Environment) -> Iterator[str]:
    for name, why in environment.unknown.items():
        yield f"{name}: {why}"


def _launch(
    process: shell.Process, environment: Environment, notes: tuple[str, ...], place: str
) -> Launch:
    return Launch(
        argv=process.argv,
        env=process.env,
        secrets=tuple(environment.secrets),
        cwd=process.cwd,
        files=process.files,
        unresolved=tuple(dict.fromkeys((*process.unresolved, *notes))),
        shell=process.shell,
        place=place,
    )
