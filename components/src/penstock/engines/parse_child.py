"""Run Dynamo's own parsers over batches of launches: a JSON line on stdin, one on stdout.

`parsers` starts this as a process of its own: the parsers write os.environ, call sys.exit and
configure logging, and nothing else may import the substitutes for the engines.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from importlib import import_module
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from penstock.engines.container import ContainerFiles, NotInManifests
from penstock.engines.parser_messages import argparse_error, needs_a_package
from penstock.engines.substitutes import TRTLLM, VLLM, substituted

Parser = Callable[[list[str]], Any]
Output = dict[str, Any]

# Dynamo's vLLM worker looks up the pod's address for NIXL; a laptop may have none but loopback.
POD_ENV = {"VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1"}


def trtllm_parser() -> Parser:
    with substituted(TRTLLM):
        return _parse_args("dynamo.trtllm.args")


def vllm_parser() -> Parser:
    with substituted(VLLM):
        import_module("dynamo.vllm.state_agent")  # imported at the end of the parse
        return _parse_args("dynamo.vllm.args")


def mocker_parser() -> Parser:
    parse = _parse_args("dynamo.mocker.args")
    build = import_module("dynamo.mocker.config").load_mocker_engine_args

    def parser(arguments: list[str]) -> Any:
        settings = parse(arguments)
        # Dynamo 1.5 calls its predictions aic.
        reads_files = ("planner_profile_data", "ais_perf_model", "ais_perf_config")
        if not any(getattr(settings, name, None) for name in (*reads_files, "aic_perf_model")):
            build(settings)  # its next step, where values are checked; with profiles it reads files
        return settings

    return parser


def llamacpp_parser() -> Parser:
    from penstock.llamacpp.arguments import parse

    def parser(arguments: list[str]) -> Any:
        parsed = parse(arguments)
        settings = {
            "model": str(parsed.model),
            "served_model_name": parsed.served_model_name,
            "engine_args": parsed.config.model_dump(),
        }
        return SimpleNamespace(**vars(parsed.runtime) | settings)

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
    "penstock.llamacpp": llamacpp_parser,
}
INFORMATION = ("-h", "--help", "--version")


class LogCollector(logging.Handler):
    """Keeps what a parser logs: some report a wrong value by logging an error and exiting."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.warnings: list[str] = []
        self.errors: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        kept = self.errors if record.levelno >= logging.ERROR else self.warnings
        kept.append(record.getMessage())


def output_of(parse: Parser, launch: Mapping[str, Any]) -> Output:
    """Parse one launch in its own environment and files."""
    logs, stderr, flags = LogCollector(), io.StringIO(), set[str]()
    files = ContainerFiles(launch["files"], launch["cwd"])
    with (
        warnings.catch_warnings(record=True) as warned,
        environment(POD_ENV | launch["env"]),
        collecting(logs),
        contextlib.redirect_stderr(stderr),
        contextlib.redirect_stdout(io.StringIO()),
        parsers_noted(lambda parser: flags.update(parser._option_string_actions)),
        files.in_place(),
    ):
        warnings.simplefilter("always")
        outcome = _outcome(parse, launch["arguments"], files, logs, stderr)
    notes = [*logs.warnings, *(str(w.message) for w in warned)]
    return {**outcome, "warnings": list(dict.fromkeys(notes)), "flags": sorted(flags)}


def _outcome(
    parse: Parser,
    arguments: list[str],
    files: ContainerFiles,
    logs: LogCollector,
    stderr: io.StringIO,
) -> Output:
    try:
        config = parse(arguments)
        check_router(config, files)
    except NotInManifests as file:
        return _unknown(f"it reads {file.path}, which is in the image or on a volume")
    except (ImportError, AttributeError) as error:
        # a package, or a part of an engine that its substitute does not have
        return _unknown(f"its parser needs what is not installed here: {error}")
    except SystemExit as exit_:
        if exit_.code in (0, None):
            flag = next((a for a in arguments if a in INFORMATION), "a flag like --help")
            return {**_rejected(""), "exiting_flag": flag}
        text = argparse_error(stderr.getvalue()) or "\n".join(logs.errors)
        return _unknown(text) if needs_a_package(text) else _rejected(text)
    except Exception as error:  # noqa: BLE001  whatever it is, the worker exits with it too
        return _rejected(str(error) or type(error).__name__)
    return {"outcome": "parsed", "settings": plain(config)}


def check_router(config: Any, files: ContainerFiles) -> None:
    """Every Dynamo process does this next; the parser does not see a wrong DYN_ROUTER_MODE."""
    import dynamo.llm
    from dynamo.common.configuration.groups.router_args import build_router_config

    advertised = getattr(config, "router_advertisement", None)
    router = config if hasattr(config, "router_mode") else advertised
    if router is None:
        return  # penstock's worker has no such flags
    real = dynamo.llm.KvRouterConfig

    def with_policy_file(**settings: Any) -> Any:
        """The native code opens the policy file, so that it needs a real one."""
        path = settings.get("router_policy_config")
        if path is None:
            return real(**settings)
        text = files.text(path)
        if text is None:
            raise NotInManifests(path)
        copy = real_copy(text)
        try:
            return real(**settings | {"router_policy_config": copy})
        except Exception as error:
            raise ValueError(f"--router-policy-config: {error}".replace(copy, path)) from error

    with patch.object(dynamo.llm, "KvRouterConfig", with_policy_file):
        build_router_config(router)


def real_copy(text: str) -> str:
    """The path of a temporary file with the text; `parsers` removes the folder."""
    handle, path = tempfile.mkstemp(suffix=".yaml")
    os.write(handle, text.encode())
    os.close(handle)
    return path


def _unknown(reason: str) -> Output:
    return {"outcome": "unknown", "reason": reason}


def _rejected(text: str) -> Output:
    return {"outcome": "rejected", "text": text}


@contextlib.contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """The launch's own variables; `parsers` has removed the DYN_* of the user's shell."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextlib.contextmanager
def collecting(logs: LogCollector) -> Iterator[None]:
    root = logging.getLogger()
    before = root.handlers[:]
    root.handlers[:] = [logs]
    try:
        yield
    finally:
        root.handlers[:] = before


@contextlib.contextmanager
def parsers_noted(note: Callable[[argparse.ArgumentParser], None]) -> Iterator[None]:
    """Call ``note`` with every parser that runs."""
    real = argparse.ArgumentParser.parse_known_args

    def noting(self: argparse.ArgumentParser, *args: Any, **options: Any) -> Any:
        note(self)
        return real(self, *args, **options)

    argparse.ArgumentParser.parse_known_args = noting  # type: ignore[method-assign]
    try:
        yield
    finally:
        argparse.ArgumentParser.parse_known_args = real  # type: ignore[method-assign]


def plain(value: Any) -> Any:
    """``value`` as JSON: enums by value, objects as mappings, everything else as text."""
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
    results_to = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a parser or a native library prints must not mix with the results
    parsers: dict[str, Parser] = {}
    for line in sys.stdin:
        launches = json.loads(line)
        for module in {launch["module"] for launch in launches} - parsers.keys():
            parsers[module] = PARSERS[module]()
        print(json.dumps([output_of(parsers[x["module"]], x) for x in launches]), file=results_to)
        results_to.flush()
    # The native runtime's threads make a normal exit take longer than the parse.
    os._exit(0)


if __name__ == "__main__":
    main()
