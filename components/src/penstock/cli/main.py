"""The `penstock` command: run a subcommand, and turn errors into messages and exit codes.

A command is a module with `add_arguments(parser)` and `run(args) -> int`. Heavy imports are inside
`run`, so that `--help` is fast.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import importlib
import io
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import ModuleType

import penstock
from penstock.cli import other_names
from penstock.cli.command_line import CommandParser
from penstock.errors import InputError, PenstockError
from penstock.text import commands

# Known conditions of this machine: what a file cannot be, and what to do about it.
WRITTEN, USED = "cannot be written", "cannot be used"
UNUSABLE = {
    errno.ENOSPC: (WRITTEN, "Free space on its file system."),
    errno.EDQUOT: (WRITTEN, "Free space in your quota."),
    errno.EROFS: (WRITTEN, "Write to a file system that is not read-only."),
    errno.EIO: (WRITTEN, "Check the disk or the terminal."),
    errno.ENAMETOOLONG: (USED, "Give it a shorter name."),
    errno.EACCES: (USED, "Change its permissions, or use another file or folder."),
}
# Most objects of a command, such as its modules, live until its end. Python's 700 would search them
# 130 times in `check`, which takes a tenth of its CPU time.
OBJECTS_BEFORE_COLLECTION = 50_000
# Task → its commands, in the order of the help. Everybody needs the ten of the first two.
GROUPS = {
    "start": {
        "init": "write a first graph for a model, GPUs and a workload",
        "check": "find errors and risks before a deployment uses a GPU",
        "up": "run a graph or a DGD manifest on this machine",
        "down": "drain and stop a running graph",
        "apply": "install or upgrade a release, and wait until it is ready",
    },
    "daily": {
        "ls": "list the graphs that are up on this machine",
        "status": "show the processes of a running graph, or with --cluster a release",
        "top": "show a live view of a running graph in the terminal or the browser",
        "logs": "print the logs of a graph's processes",
        "scale": "set the replicas of pools in a graph, which a running `up` applies",
    },
    "measure": {
        "verify": "check that a running deployment does what its graph declares",
        "bench": "measure a running endpoint under a workload, or compare two",
        "trace": "explain which stage made a request slow",
        "drill": "inject faults under load, and report failed requests",
        "capture": "turn logs of served requests into a workload trace",
    },
    "predict": {
        "simulate": "predict the performance of graphs by replaying a workload",
        "plan": "recommend a graph for a model, GPU budget, workload and SLO",
    },
    "cluster": {
        "render": "print the manifests that `helm install` would apply",
        "diff": "show what an upgrade would change in a running release",
        "history": "list the revisions of a release",
        "rollback": "roll back a release to an earlier revision, and wait",
        "upgrade": "move a graph to another version of Dynamo",
        "uninstall": "remove a release and keep its model cache",
        "gateway": "render or run an API gateway (keys, rate limits, canary, shadow)",
    },
    "more": {
        "explain": "print the argv, environment, files and GPUs of each component",
        "tools": "manage environments, print schemas, write small models",
    },
}
COMMANDS = {name: text for commands in GROUPS.values() for name, text in commands.items()}
# Commands of two words, with options of their own; a graph of this name is given as `./shadow`.
# A second word that is an option may stand anywhere, and its value is an argument.
SUBCOMMANDS = {
    "bench public": "measure an endpoint by the method of a public benchmark",
    "bench shadow": "send the same requests to two endpoints, and compare the responses",
    "plan --router": "find router settings for a graph's traffic by replaying it",
    "tools completion": "print the completion script of a shell",
    "tools env": "install, list or remove environments for large tools",
    "tools schema": "print the JSON schema of the graph YAML",
    "tools tiny-model": "write a small model with random weights, for the CPU graphs",
}
USAGE = 2
UNEXPECTED = 70
INTERRUPTED = 130


def help_text() -> str:
    """What `penstock --help` prints."""
    groups = (
        f"{task}:\n" + "".join(f"  {name:<9}  {text}\n" for name, text in commands.items())
        for task, commands in GROUPS.items()
    )
    return (
        "usage: penstock COMMAND [ARGUMENTS] [OPTIONS]\n\n"
        "Deploy large language models on NVIDIA Dynamo from one graph YAML.\n\n"
        + "\n".join(groups)
        + "\noptions:\n"
        "  -h, --help  print this help; after a command: its options\n"
        "  --version   print the version\n"
    )


def command_parser(command: str) -> CommandParser:
    """The parser of one of `COMMANDS` or `SUBCOMMANDS`."""
    purpose = (COMMANDS | SUBCOMMANDS)[command]
    parser = CommandParser(
        prog=f"penstock {command}", description=purpose, owner=partial(_owner, command)
    )
    add_arguments(parser, command)
    return parser


def _owner(command: str, option: str) -> str:
    """The command with the same first word that has an option which ``command`` lacks."""
    word = command.split(maxsplit=1)[0]
    names = [name for name in COMMANDS | SUBCOMMANDS if name.split()[0] == word]
    return next((n for n in names if n != command and option in command_parser(n).options()), "")


def add_arguments(parser: CommandParser, command: str) -> None:
    """Those of one of `COMMANDS` or `SUBCOMMANDS`, and `-q`, which every command accepts."""
    from penstock.cli.progress import add_quiet

    module_of(command).add_arguments(parser)
    if "--quiet" not in parser.options():
        add_quiet(parser)


def module_of(command: str) -> ModuleType:
    """The module of one of `COMMANDS` or `SUBCOMMANDS`."""
    name = command.replace(" --", "_").replace("-", "_").replace(" ", "_")
    return importlib.import_module(f"penstock.cli.{name}")


def main(argv: Sequence[str] | None = None) -> int:
    """Parse, run the command, and return the exit code of docs/commands.md's table.

    Without a command it prints the help and returns 0, as kubectl and helm do: nothing failed.
    """
    _repair_streams()
    if argv is None:
        _note_invocation()
        gc.set_threshold(OBJECTS_BEFORE_COLLECTION)
    command, *rest = (sys.argv[1:] if argv is None else argv) or ["--help"]
    if command == "help" and rest:
        command, rest = rest[0], [*rest[1:], "--help"]
    command, rest = other_names.current_command(command, rest)
    command, rest = selected_command(command, rest)
    name = f"penstock {command}" if command in COMMANDS | SUBCOMMANDS else "penstock"
    try:
        code = _run(command, rest)
        sys.stdout.flush()
        return _interrupted(name) if code == INTERRUPTED else code
    except PenstockError as error:
        _complain(f"{name}: {error}")
        return error.exit_code
    except KeyboardInterrupt as interrupt:
        return _interrupted(name, *map(str, interrupt.args))
    except BrokenPipeError:
        _discard_output()  # its reader (head, less) has exited
        return 0
    except OSError as error:
        if error.errno not in UNUSABLE:
            return _unexpected(name)
        problem, fix = UNUSABLE[error.errno]
        if problem == WRITTEN and not error.filename:
            _discard_output()
        where = error.filename or "the output"
        _complain(f"{name}: {where} {problem}: {error.strerror}. Fix: {fix}")
        return InputError.exit_code
    except Exception:
        return _unexpected(name)


def selected_command(command: str, rest: Sequence[str]) -> tuple[str, list[str]]:
    """The command with its second word, if `SUBCOMMANDS` has it, and the arguments after it."""
    words = list(rest)
    for name in SUBCOMMANDS:
        first, second = name.split()
        if command != first:
            continue
        if words[:1] == [second]:
            return name, words[1:]
        for number, word in enumerate(words if second.startswith("--") else ()):
            option, equals, argument = word.partition("=")
            if option == second:
                words[number : number + 1] = [argument] if equals else []
                return name, words
    return command, words


def _repair_streams() -> None:
    """Discard what is written to a closed stream; and an ASCII terminal must not raise."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # It gets the lowest free number, the closed one, which no other file may get.
            handle = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(handle, mode, encoding="utf-8"))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _note_invocation() -> None:
    """So that messages name commands as the user types them."""
    with contextlib.suppress(OSError):  # no /proc: not Linux
        parent = Path(f"/proc/{os.getppid()}/cmdline").read_text("utf-8", "surrogateescape")
        commands.set_invocation(parent.split("\0")[:-1], sys.argv)
    if commands.invocation() != commands.NAME:
        sys.stderr = commands.Messages(sys.stderr)


def _run(command: str, arguments: Sequence[str]) -> int:
    if command in ("help", "-h", "--help"):
        print(help_text(), end="")
        return 0
    if command == "--version":
        print(f"penstock {penstock.__version__}")
        return 0
    if command not in COMMANDS | SUBCOMMANDS:
        problem = other_names.unknown_command(command, arguments, COMMANDS)
        _complain(f"penstock: {problem}\nSee `penstock --help`.")
        return USAGE
    _require_folder()
    options = command_parser(command).parse(arguments)
    with other_names.shown_on_stderr(command):
        return int(module_of(command).run(options))


def _require_folder() -> None:
    """InputError if the working folder was deleted, which no path survives."""
    try:
        Path.cwd()
    except FileNotFoundError:
        fix = "Change to a folder that exists: `cd`."
        raise InputError("the working folder was deleted", fix=fix) from None


def _complain(text: str) -> None:
    """Print an error; one that cannot be printed does not change the exit code."""
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def _interrupted(name: str, *effects: str) -> int:
    """``effects``: of Ctrl-C, such as that nothing was written."""
    _complain("; ".join((f"{name}: interrupted", *effects)))
    return INTERRUPTED


def _discard_output() -> None:
    """Python would write the rest of the output at exit, and fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _unexpected(name: str) -> int:
    """Print one line, and write the details to a file."""
    import traceback

    from penstock.files import write_details

    details = traceback.format_exc()
    last = details.strip().splitlines()[-1]
    _complain(f"{name}: unexpected error, a bug in penstock: {last}. {write_details(details)}")
    return UNEXPECTED


if __name__ == "__main__":
    sys.exit(main())
