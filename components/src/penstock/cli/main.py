"""The `penstock` command: run a subcommand, and turn errors into messages and exit codes.

A command is a module with `add_arguments(parser)` and `run(args) -> int`. Heavy imports are inside
`run`, so that `--help` is fast.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import io
import os
import sys
import tempfile
import traceback
from collections.abc import Sequence
from typing import Any

import penstock
from penstock.cli import deprecations
from penstock.errors import InputError, PenstockError

# Known conditions of this machine, and what to do about them.
CANNOT_WRITE = {
    errno.ENOSPC: "Free space on its file system.",
    errno.EDQUOT: "Free space in your quota.",
    errno.EROFS: "Write to a file system that is not read-only.",
    errno.EIO: "Check the disk or the terminal.",
}
COMMANDS = {
    "up": "run a graph or a DGD manifest on this machine",
    "status": "show the processes of a running graph, or with --cluster a release",
    "scale": "set the replicas of pools in a graph, which a running `up` applies",
    "logs": "print the logs of a graph's processes",
    "down": "drain and stop a running graph",
    "check": "find errors and risks before a deployment uses a GPU",
    "simulate": "predict the performance of graphs by replaying a workload",
    "plan": "recommend a deployment for a model, GPU budget, workload and SLO",
    "render": "print the manifests that `helm install` would apply",
    "diff": "show what an upgrade would change in a running release",
    "apply": "install or upgrade a release, and wait until it is ready",
    "upgrade": "move a graph to another version of Dynamo, with the plan of the upgrade",
    "rollback": "roll back a release to an earlier revision, and wait until it is ready",
    "history": "list the revisions of a release",
    "uninstall": "remove a release and keep its model cache",
    "explain": "print the argv, environment, files and GPUs of each component",
    "schema": "print the JSON schema of the graph YAML",
    "verify": "check that a running deployment does what its graph declares",
    "drill": "inject faults into a graph or an endpoint under load, and report failed requests",
    "tiny-model": "write a small model with random weights, for the CPU graphs",
    "gateway": "render or run an API gateway (keys, rate limits, canary, shadow)",
    "env": "install, list or remove environments for large tools",
}
USAGE = 2
UNEXPECTED = 70
INTERRUPTED = 130


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="penstock",
        allow_abbrev=False,
        description="Deploy large language models on NVIDIA Dynamo from one graph YAML.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="commands:\n" + "\n".join(f"  {name:<10} {text}" for name, text in COMMANDS.items()),
    )
    top.add_argument("--version", action="version", version=f"penstock {penstock.__version__}")
    top.add_argument(
        "command", choices=COMMANDS, metavar="COMMAND", help="one of the commands below"
    )
    top.add_argument(
        "arguments",
        nargs=argparse.REMAINDER,
        help="arguments of the command; see penstock COMMAND --help",
    )
    return top


def command_parser(command: str) -> argparse.ArgumentParser:
    """The parser of one command's arguments."""
    result = argparse.ArgumentParser(
        prog=f"penstock {command}", description=COMMANDS[command], allow_abbrev=False
    )
    _module(command).add_arguments(result)
    return result


def _module(command: str) -> Any:
    return importlib.import_module(f"penstock.cli.{command.replace('-', '_')}")


def main(argv: Sequence[str] | None = None) -> int:
    """Parse, run the command, and return the exit code of the README's table."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # an ASCII terminal must not raise
    selected = parser().parse_args(argv)
    module = _module(selected.command)
    try:
        options = command_parser(selected.command).parse_args(selected.arguments)
        with deprecations.shown_on_stderr(selected.command):
            code = int(module.run(options))
            sys.stdout.flush()
            return code
    except PenstockError as error:
        print(f"penstock {selected.command}: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _discard_output()  # its reader (head, less) has exited
        return 0
    except OSError as error:
        if error.errno not in CANNOT_WRITE:
            return _unexpected(selected.command)
        _discard_output()
        where = error.filename or "the output"
        problem = f"{where} cannot be written: {error.strerror}. Fix: {CANNOT_WRITE[error.errno]}"
        print(f"penstock {selected.command}: {problem}", file=sys.stderr)
        return InputError.exit_code
    except Exception:
        return _unexpected(selected.command)


def _discard_output() -> None:
    """Python would write the rest of the output at exit, and fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _unexpected(command: str) -> int:
    with tempfile.NamedTemporaryFile(
        "w", prefix="penstock-error-", suffix=".log", delete=False
    ) as log:
        traceback.print_exc(file=log)
    last = traceback.format_exc().strip().splitlines()[-1]
    print(f"penstock {command}: unexpected error: {last}. Details: {log.name}", file=sys.stderr)
    return UNEXPECTED


if __name__ == "__main__":
    sys.exit(main())
