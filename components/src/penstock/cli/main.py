"""The `penstock` command: picks the verb, runs it, turns errors into messages and exit codes.

A verb is a module with `HELP`, `add_arguments(parser)` and `run(args) -> int`; the heavy imports
are inside `run`, so that `--help` answers at once.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
import tempfile
import traceback
from collections.abc import Sequence

import penstock
from penstock.cli import deprecations
from penstock.errors import PenstockError

VERBS = {
    "up": "run a graph, or any DGD manifest, on this machine",
    "status": "show a graph that is up here: workers, ports, pids; or a release: --cluster",
    "scale": "edit a graph's replicas; `up` follows, and --cluster applies it",
    "logs": "show the logs of a graph's processes",
    "down": "drain and stop a graph that is up",
    "check": "find errors and risks before a deployment uses a GPU",
    "simulate": "replay a workload against graphs in virtual time, with measured kernels",
    "plan": "choose a graph for a model, GPUs, traffic and promises, with evidence",
    "render": "print the manifests that `helm install` would apply",
    "diff": "say what an upgrade would do to a running release, before it does it",
    "apply": "install or upgrade a release, and watch it until it is ready or says why not",
    "rollback": "go back to an earlier revision of a release, and watch it",
    "history": "list the revisions of a release",
    "uninstall": "remove a release; the model's cache stays unless told",
    "explain": "print each component's argv, environment, files and GPUs",
    "schema": "print the JSON schema of the graph YAML",
    "verify": "prove that a running deployment does what its graph says",
    "tiny-model": "write a small model with random weights, for the CPU graphs",
    "gateway": "keys, limits, canary and shadow before graphs: manifests, or here",
    "env": "install and list environments for heavy tools",
}
USAGE = 2
UNEXPECTED = 70
INTERRUPTED = 130


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="penstock",
        allow_abbrev=False,
        description="One graph YAML becomes a live OpenAI endpoint on NVIDIA Dynamo.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="verbs:\n" + "\n".join(f"  {name:<10} {text}" for name, text in VERBS.items()),
    )
    top.add_argument("--version", action="version", version=f"penstock {penstock.__version__}")
    top.add_argument("verb", choices=VERBS, metavar="VERB", help="one of those below")
    top.add_argument("arguments", nargs=argparse.REMAINDER, help="penstock VERB --help")
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Parse, run the verb, and return the exit code of the README's table."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # an ASCII terminal must not stop us
    asked = parser().parse_args(argv)
    verb = importlib.import_module(f"penstock.cli.{asked.verb.replace('-', '_')}")
    own = argparse.ArgumentParser(
        prog=f"penstock {asked.verb}", description=VERBS[asked.verb], allow_abbrev=False
    )
    verb.add_arguments(own)
    try:
        options = own.parse_args(asked.arguments)
        with deprecations.shown_on_stderr(asked.verb):
            return int(verb.run(options))
    except PenstockError as error:
        print(f"penstock {asked.verb}: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output (head, less) went away; Python must not complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception:
        return _unexpected(asked.verb)


def _unexpected(verb: str) -> int:
    with tempfile.NamedTemporaryFile(
        "w", prefix="penstock-error-", suffix=".log", delete=False
    ) as log:
        traceback.print_exc(file=log)
    last = traceback.format_exc().strip().splitlines()[-1]
    print(f"penstock {verb}: unexpected: {last}. Details: {log.name}", file=sys.stderr)
    return UNEXPECTED


if __name__ == "__main__":
    sys.exit(main())
