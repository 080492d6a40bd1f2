"""What the children of all engines share: the loop, and which errors are refusals.

They run in the engines' environments; nothing here imports an engine.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.abc
import importlib.machinery
import io
import json
import os
import re
import resource
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

from penstock.engines.container import ContainerFiles, NotInManifests
from penstock.engines.parse_child import LogCollector, collecting, environment
from penstock.engines.parser_messages import argparse_error

Fields = dict[str, Any]
# Takes the arguments of the worker and the hardware; returns the fields of `Resolved`.
Build = Callable[[list[str], Mapping[str, Any]], Fields]

PR_SET_PDEATHSIG = 1  # sys/prctl.h
MEMORY_BYTES = 24 * 2**30  # limit of the address space; the imports take 2 GiB
# What an engine reads on this machine as it would in its container.
SYSTEM = ("/proc", "/sys", "/dev", "/usr", "/etc/hosts", "/etc/resolv.conf", "/etc/os-release")
# A part of the engine, of its substitutes, or of the model's files is missing here: no refusal.
MISSING_HERE = (
    *(ImportError, AttributeError, NameError, OSError, KeyError, MemoryError),
    *(NotImplementedError, ArithmeticError),
)
# Parts of messages that report the same.
MISSING_TEXTS = re.compile(
    r"not compiled with CUDA|No CUDA GPUs|NVIDIA driver|nvml|failed to be inspected|"
    r"Can't load|offline mode|couldn't connect|not a local folder|huggingface|not found at|"
    r"file not found|tokeniz|"
    r"does not recognize this architecture|trust_remote_code|Unrecognized model|"
    r"Transformers? (?:does|implementation)|be installed|pip install|not installed|"
    r"Cannot find any of .* in the model's quantization config",
    re.IGNORECASE,
)
PYDANTIC = re.compile(r"\d+ validation errors? for \w+\n")
DETAIL = re.compile(
    r"\s*\[type=\w+, input_value=.*?\](?=\s*(?:\n\s*For further|$))"
    r"|\s*For further information visit \S+",
    re.DOTALL,
)


def end_with_parent() -> None:
    """Ask Linux to kill this process when the one that started it ends, however that ends."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


end_with_parent()  # before an engine is imported, which takes longer than anything else


def serve(version: str, build: Build) -> None:
    """One configuration a line, until stdin ends; the first line states the version."""
    results_to = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever an engine prints must not mix with the results
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    print(json.dumps({"version": version}), file=results_to, flush=True)
    for line in sys.stdin:
        print(json.dumps(outcome(json.loads(line), build)), file=results_to, flush=True)
    os._exit(0)  # threads of the engines' libraries make a normal exit slow


def outcome(asked: Mapping[str, Any], build: Build) -> Fields:
    """The line about one configuration."""
    logs, stderr = LogCollector(), io.StringIO()
    files = ContainerFiles(
        asked["files"], asked["cwd"], (*asked["folders"], *SYSTEM, tempfile.gettempdir())
    )
    try:
        with (
            environment(variables(asked["env"])),
            collecting(logs),
            contextlib.redirect_stderr(stderr),
            contextlib.redirect_stdout(io.StringIO()),
            files.in_place(),
        ):
            resolved = build(list(asked["arguments"]), asked["hardware"])
    except NotInManifests as file:
        return undecided(f"the engine reads {file.path}, which is in the image or on a volume")
    except SystemExit:
        text = argparse_error(stderr.getvalue()) or "\n".join(logs.errors)
        return refused(text) if text else undecided("a flag ends the process")
    except Exception as error:  # noqa: BLE001  the worker would exit with whatever it is
        print(traceback.format_exc(), *logs.errors, sep="\n", file=sys.stderr)  # into its log
        return of_error(error)
    return {"outcome": "accepted", "resolved": resolved}


def variables(env: Mapping[str, str]) -> Mapping[str, str]:
    """The variables of the launch, except those that `process.OFFLINE` sets or that select GPUs."""
    kept = ("HF_HUB_OFFLINE", "CUDA_VISIBLE_DEVICES", "VLLM_CACHE_ROOT", "TMPDIR", "HOME")
    return {
        name: text
        for name, text in env.items()
        if name not in kept and "$" not in text and not name.endswith("_HOST")
    }


def of_error(error: Exception) -> Fields:
    """Whether an exception is the engine's refusal, or the lack of something here."""
    error = _cause(error)
    text = clean(str(error))
    kind = type(error).__name__
    if _is_of("transformers", error):  # a class of a configuration here, not the engine
        return undecided(f"{kind}: {text}")
    if isinstance(error, AssertionError) and not text:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        if frame.name == "<module>":  # of a module that is imported with substitutes
            return undecided(f"{frame.filename}: {frame.line}")
        return refused(f"{os.path.basename(frame.filename)}: {frame.line}")
    if isinstance(error, TypeError) and "unexpected keyword argument" not in text:
        return undecided(f"{kind}: {text}")
    if isinstance(error, MISSING_HERE) or MISSING_TEXTS.search(text) or not text:
        return undecided(f"{kind}: {text}")
    return {**refused(text), "is_of_dynamo": _is_of("dynamo", error)}


def _is_of(package: str, error: Exception) -> bool:
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and f"{os.sep}{package}{os.sep}" in frames[-1].filename


def _cause(error: Exception) -> Exception:
    """The error that an engine raised itself, inside of one of pydantic."""
    details: Any = getattr(error, "errors", None)
    if type(error).__name__ == "ValidationError" and callable(details):
        inner = details()[0].get("ctx", {}).get("error")
        return _cause(inner) if isinstance(inner, Exception) else error
    return error


def clean(text: str) -> str:
    """A message in one line, without what pydantic adds to it."""
    if PYDANTIC.search(text):
        text = DETAIL.sub("", PYDANTIC.sub("", text)).replace("Value error, ", "")
        text = text.replace("Assertion failed, ", "")
    return " ".join(text.split())


def refused(text: str) -> Fields:
    return {"outcome": "refused", "text": clean(text)}


def undecided(text: str) -> Fields:
    return {"outcome": "undecided", "text": clean(text)[:500]}


class Anything(ModuleType):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__ = []  # a package, so that its children can be imported
        self.__file__ = "/nowhere/__init__.py"
        self.__version__ = "99.0.0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        mock = MagicMock(name=f"{self.__name__}.{name}")
        setattr(self, name, mock)
        return mock


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def find_spec(
        self, fullname: str, path: object = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        if any(fullname == name or fullname.startswith(f"{name}.") for name in self._names):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return Anything(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def replace_modules(*names: str) -> None:
    """Make these modules and all below them importable, instead of real ones."""
    sys.meta_path.insert(0, _Finder(names))
