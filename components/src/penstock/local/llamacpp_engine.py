"""llama.cpp workers on this machine: where their packages and their model are.

They run with the Python of this process, to which the environment `llamacpp` adds its packages.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.environments import openmp
from penstock.environments.packaged_models import packaged_model, packaged_model_fix
from penstock.errors import InputError, MissingToolError, Problem
from penstock.gguf import folder_of
from penstock.manifests import flags

ENVIRONMENT = "llamacpp"
# Threads that wait for each other sleep. With OpenMP's default they spin: while other processes
# used the cores (load average 10 to 15 on 2), a token took 850 to 1,560 ms instead of 65 to 94 ms.
VARIABLES: Mapping[str, str] = {"OMP_WAIT_POLICY": "passive"}


@dataclass(frozen=True, kw_only=True)
class GgufModel:
    file: Path
    folder: Path
    """Its config and tokenizer files, for Dynamo's frontend."""


def find_gguf(model: str) -> GgufModel:
    """The GGUF file of ``model``, a path or the id of a packaged model, and its folder.

    InputError when it is not on this machine, or is not a GGUF file that can be served.
    """
    path = Path(model).expanduser()
    file = path.absolute() if path.is_file() else packaged_model(model, "gguf")
    if file is None:
        raise InputError(
            Problem(
                place="model.path",
                message=f"{model!r} is not a GGUF file on this machine",
                fix=packaged_model_fix(model, "gguf")
                or "Set `model.path` to a GGUF file, or `model.id` to "
                "HuggingFaceTB/SmolLM2-135M-Instruct, which is packaged.",
            )
        )
    return GgufModel(file=file, folder=folder_of(file, cache()))


def cache() -> Path:
    """Folder of the model folders that are made from GGUF files."""
    xdg = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(xdg) / "penstock" / "gguf"


def require_packages(python: str | None) -> Path:
    """Site-packages of the environment; ``python``: its interpreter, None if not installed.

    MissingToolError when it is not installed.
    """
    found = (
        next(Path(python).parents[1].glob("lib/python*/site-packages"), None) if python else None
    )
    if found is None:
        raise MissingToolError(
            Problem(
                place="engine.kind",
                message=f"llama.cpp needs environment {ENVIRONMENT}, which is not installed",
                fix=f"Run `penstock env install {ENVIRONMENT}`, or use `--engine mocker`.",
            )
        )
    return found


def arguments(given: tuple[str, ...], model: GgufModel) -> tuple[str, ...]:
    """The worker's arguments with the model's local files."""
    rest = flags.without_flags(given, "--model", "--model-folder")
    return ("--model", str(model.file), "--model-folder", str(model.folder), *rest)


def environment(packages: Path) -> Mapping[str, str]:
    """Of a worker; ``packages``: the site-packages of `require_packages`."""
    libraries = openmp.search_path(packages.parents[2])
    found = {"LD_LIBRARY_PATH": str(libraries)} if libraries else {}
    return {"PYTHONPATH": str(packages), **found}
