"""Run Dynamo's own parsers over batches of launches: a JSON line on stdin, one on stdout.

`parsers` starts this as a process of its own: the parsers write os.environ, call sys.exit and
configure logging, and the stand-ins for the engines must not be seen by anything else.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from importlib import import_module
from typing import Any

from penstock.engines.container import ContainerFiles, NotInManifests
from penstock.engines.substitutes import substituted

Parser = Callable[[list[str]], Any]
Answer = dict[str, Any]

# Dynamo's vLLM worker looks up the pod's address for NIXL; a laptop may have none but loopback.
POD_ENV = {"VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1"}


def trtllm_parser() -> Parser:
    from penstock.engines.substitutes import trtllm

    with substituted(trtllm.MODULES):
        return _parse_args("dynamo.trtllm.args")


def vllm_parser() -> Parser:
    from penstock.engines.substitutes import vllm

    with substituted(vllm.MODULES):
        import_module("dynamo.vllm.state_agent")  # imported at the end of the parse
        return _parse_args("dynamo.vllm.args")


def mocker_parser() -> Parser:
    parse = _parse_args("dynamo.mocker.args")
    build = import_module("dynamo.mocker.config").load_mocker_engine_args

    def parser(arguments: list[str]) -> Any:
        settings = parse(arguments)
        if not (
            settings.planner_profile_data or settings.ais_perf_model or settings.ais_perf_config
        ):
            build(settings)  # its next step, where values are checked; with profiles it reads files
        return settings

    return parser


def frontend_parser() -> Parser:
    parse = import_module("dynamo.frontend.main").parse_args

    def parser(arguments: list[str]) -> Any:
        sys.argv = ["dynamo.frontend", *arguments]  # it takes no argument list
        return parse()[0]

    return parser


def _parse_args(module: str) -> Parser:
    parser: Parser = import_module(module).parse_args
    return parser


PARSERS: Mapping[str, Callable[[], Parser]] = {
    "dynamo.frontend": frontend_parser,
    "dynamo.mocker": mocker_parser,
    "dynamo.trtllm": trtllm_parser,
    "dynamo.vllm": vllm_parser,
}
INFORMATION = ("-h", "--help", "--version")


class Ear(logging.Handler):
    """Keeps what a parser logs: some refuse by logging an error and exiting."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.warnings: list[str] = []
        self.errors: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        kept = self.errors if record.levelno >= logging.ERROR else self.warnings
        kept.append(record.getMessage())


def answer(parse: Parser, launch: Mapping[str, Any]) -> Answer:
    """Parse one launch in its own environment and files."""
    ear, stderr, flags = Ear(), io.StringIO(), set[str]()
    files = ContainerFiles(launch["files"], launch["cwd"])
    with (
        warnings.catch_warnings(record=True) as warned,
        environment(POD_ENV | launch["env"]),
        heard_by(ear),
        contextlib.redirect_stderr(stderr),
        contextlib.redirect_stdout(io.StringIO()),
        flags_noted(flags),
        files.in_place(),
    ):
        warnings.simplefilter("always")
        outcome = _outcome(parse, launch["arguments"], ear, stderr)
    notes = [*ear.warnings, *(str(w.message) for w in warned)]
    return {**outcome, "warnings": list(dict.fromkeys(notes)), "flags": sorted(flags)}


def _outcome(parse: Parser, arguments: list[str], ear: Ear, stderr: io.StringIO) -> Answer:
    try:
        config = parse(arguments)
        check_router(config)
        return {"outcome": "parsed", "settings": plain(config)}
    except NotInManifests as file:
        return _unknown(f"it reads {file.path}, which lies in the image or on a volume")
    except (ImportError, AttributeError) as error:
        # a package, or a part of an engine that its stand-in lacks
        return _unknown(f"its parser needs what is not installed here: {error}")
    except SystemExit as exit_:
        if exit_.code in (0, None):
            flag = next((a for a in arguments if a in INFORMATION), "a flag like --help")
            return _refused(f"argument {flag}: it ends the process before it serves")
        text = _argparse_message(stderr.getvalue()) or "\n".join(ear.errors)
        # `--dyn-chat-processor vllm`: the frontend's parser asks vLLM's, which is not here
        missing = "be installed" in text
        return _unknown(text) if missing else _refused(text)
    except Exception as error:  # noqa: BLE001  whatever it is, the worker ends with it too
        return _refused(str(error) or type(error).__name__)


def check_router(config: Any) -> None:
    """What every Dynamo process does next; here a bad DYN_ROUTER_MODE shows, not in the parser."""
    from dynamo.common.configuration.groups.router_args import build_router_config

    router = config if hasattr(config, "router_mode") else config.router_advertisement
    build_router_config(router)


def _unknown(reason: str) -> Answer:
    return {"outcome": "unknown", "reason": reason}


def _refused(text: str) -> Answer:
    return {"outcome": "refused", "text": text}


def _argparse_message(stderr: str) -> str:
    """What follows `prog: error: `, without the usage text above it."""
    return stderr.rpartition(": error: ")[2].strip() if ": error: " in stderr else ""


@contextlib.contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """The launch's own variables, and no DYN_* of the user's shell (`parsers` takes those out)."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextlib.contextmanager
def heard_by(ear: Ear) -> Iterator[None]:
    root = logging.getLogger()
    before = root.handlers[:]
    root.handlers[:] = [ear]
    try:
        yield
    finally:
        root.handlers[:] = before


@contextlib.contextmanager
def flags_noted(flags: set[str]) -> Iterator[None]:
    """Collect the flags of every parser that runs, for "did you mean"."""
    real = argparse.ArgumentParser.parse_known_args

    def noting(self: argparse.ArgumentParser, *args: Any, **options: Any) -> Any:
        flags.update(self._option_string_actions)
        return real(self, *args, **options)

    argparse.ArgumentParser.parse_known_args = noting  # type: ignore[method-assign]
    try:
        yield
    finally:
        argparse.ArgumentParser.parse_known_args = real  # type: ignore[method-assign]


def plain(value: Any) -> Any:
    """``value`` as JSON has it: enums by value, objects as mappings, the rest as text."""
    if value is None or isinstance(value, (str, int, float, bool)):
        return value.value if isinstance(value, Enum) else value
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (Sequence, set, frozenset)):
        return [plain(item) for item in value]
    if hasattr(value, "__dict__"):
        return {key: plain(item) for key, item in vars(value).items()}
    return str(value)


def main() -> None:
    """One batch a line, until stdin ends; `parsers` sends one, a test may send many."""
    answers_to = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a parser or a native library prints must not mix with the answers
    parsers: dict[str, Parser] = {}
    for line in sys.stdin:
        launches = json.loads(line)
        for module in {launch["module"] for launch in launches} - parsers.keys():
            parsers[module] = PARSERS[module]()
        print(json.dumps([answer(parsers[x["module"]], x) for x in launches]), file=answers_to)
        answers_to.flush()
    # The native runtime's threads make a normal exit take longer than the parse.
    os._exit(0)


if __name__ == "__main__":
    main()
