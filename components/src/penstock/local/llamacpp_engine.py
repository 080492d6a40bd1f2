"""llama.cpp workers on this machine: where their packages and their model are.

They run with the Python that has Dynamo, to which the environment `llamacpp` adds its packages.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.environments import openmp
from penstock.environments.packaged_models import packaged_model, packaged_model_fix
from penstock.errors import InputError, MissingToolError
from penstock.files import only_penstock
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
            f"{model!r} is not a GGUF file on this machine",
            place="model.path",
            fix=packaged_model_fix(model, "gguf")
            or "Set `model.path` to a GGUF file, or `model.id` to "
            "HuggingFaceTB/SmolLM2-135M-Instruct, which is packaged.",
        )
    return GgufModel(file=file, folder=folder_of(file, cache()))


def cache() -> Path:
    """Folder of the model folders that are made from GGUF files."""
    return _cache() / "gguf"


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock"


def require_packages(interpreters: Mapping[str, str]) -> Path:
    """The site-packages with llama.cpp; ``interpreters``: environment → its Python.

    MissingToolError when the environment is not installed.
    """
    python = interpreters.get(ENVIRONMENT)
    pattern = "lib/python*/site-packages"
    packages = next(Path(python).parents[1].glob(pattern), None) if python else None
    if packages is None:
        raise MissingToolError(
            f"llama.cpp needs environment {ENVIRONMENT}, which is not installed",
            place="engine.kind",
            fix=f"Run `penstock tools env install {ENVIRONMENT}`, or use `--engine mocker`.",
        )
    return packages


def arguments(graph_arguments: tuple[str, ...], model: GgufModel) -> tuple[str, ...]:
    """The worker's arguments with the model's local files."""
    rest = flags.without_flags(graph_arguments, "--model", "--model-folder")
    return ("--model", str(model.file), "--model-folder", str(model.folder), *rest)


def variables(env: Mapping[str, str], packages: Path, python: str) -> dict[str, str]:
    """Variables of a worker in ``python``; ``env``: those of the graph."""
    folders = [packages] if python == sys.executable else [packages, _penstock()]
    search = {"PYTHONPATH": os.pathsep.join(map(str, folders))}
    if libraries := openmp.search_path(packages.parents[2]):
        search["LD_LIBRARY_PATH"] = str(libraries)
    return {**VARIABLES, **env, **search}


def _penstock() -> Path:
    """A folder with penstock alone, for a worker in another Python: that of an environment or of
    another version of Dynamo. Each installation of penstock has its own."""
    package = str(Path(__file__).parents[1])
    return only_penstock(_cache() / "import" / hashlib.sha256(package.encode()).hexdigest()[:16])
