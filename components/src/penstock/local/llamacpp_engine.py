"""llama.cpp workers on this machine: where their packages and their model are.

They run with the Python that has Dynamo, to which the environment `llamacpp` adds its packages, and
`llamacpp-nixl` those for KV transfers with NIXL.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.engines.llamacpp import uses_nixl
from penstock.engines.setting_names import LLAMACPP_KV_TRANSFER
from penstock.environments import openmp
from penstock.environments.packaged_models import packaged_model, packaged_model_fix
from penstock.errors import InputError, MissingToolError, Problem
from penstock.files import only_penstock
from penstock.gguf import folder_of
from penstock.manifests import flags
from penstock.manifests.deployment import Component

ENVIRONMENT = "llamacpp"
NIXL_ENVIRONMENT = "llamacpp-nixl"
# Threads that wait for each other sleep. With OpenMP's default they spin: while other processes
# used the cores (load average 10 to 15 on 2), a token took 850 to 1,560 ms instead of 65 to 94 ms.
VARIABLES: Mapping[str, str] = {"OMP_WAIT_POLICY": "passive"}


@dataclass(frozen=True, kw_only=True)
class Packages:
    """The site-packages of the environments."""

    llamacpp: Path
    nixl: Path | None
    """None: the worker does not use NIXL."""


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
    return _cache() / "gguf"


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock"


def require_packages(interpreters: Mapping[str, str], component: Component) -> Packages:
    """What the component's workers need; ``interpreters``: environment → its Python.

    MissingToolError when an environment is not installed.
    """
    llamacpp = _site_packages(interpreters, ENVIRONMENT)
    if llamacpp is None:
        raise _missing("engine.kind", "llama.cpp", ENVIRONMENT, "use `--engine mocker`")
    if not uses_nixl(component):
        return Packages(llamacpp=llamacpp, nixl=None)
    nixl = _site_packages(interpreters, NIXL_ENVIRONMENT)
    if nixl is None:
        place, fix = f"engine.config.{LLAMACPP_KV_TRANSFER}", f"remove `{LLAMACPP_KV_TRANSFER}`"
        raise _missing(place, f"{component.name}: nixl", NIXL_ENVIRONMENT, fix)
    return Packages(llamacpp=llamacpp, nixl=nixl)


def _site_packages(interpreters: Mapping[str, str], name: str) -> Path | None:
    python = interpreters.get(name)
    return next(Path(python).parents[1].glob("lib/python*/site-packages"), None) if python else None


def _missing(place: str, what: str, name: str, otherwise: str) -> MissingToolError:
    return MissingToolError(
        Problem(
            place=place,
            message=f"{what} needs environment {name}, which is not installed",
            fix=f"Run `penstock tools env install {name}`, or {otherwise}.",
        )
    )


def arguments(given: tuple[str, ...], model: GgufModel) -> tuple[str, ...]:
    """The worker's arguments with the model's local files."""
    rest = flags.without_flags(given, "--model", "--model-folder")
    return ("--model", str(model.file), "--model-folder", str(model.folder), *rest)


def variables(own: Mapping[str, str], packages: Packages, python: str) -> dict[str, str]:
    """Variables of a worker in ``python``; ``own``: those of the graph."""
    folders = [packages.llamacpp, packages.nixl, None if python == sys.executable else _penstock()]
    made = {"PYTHONPATH": os.pathsep.join(str(folder) for folder in folders if folder is not None)}
    if libraries := openmp.search_path(packages.llamacpp.parents[2]):
        made["LD_LIBRARY_PATH"] = str(libraries)
    if packages.nixl is None:
        return {**VARIABLES, **own, **made}
    # UCX logs each transport, for `penstock verify`.
    return {**VARIABLES, "UCX_LOG_LEVEL": "info", **own, **made, "UCX_NET_DEVICES": "lo"}


def _penstock() -> Path:
    """A folder with penstock alone, for a worker in another Python: that of an environment or of
    another version of Dynamo. Each installation of penstock has its own."""
    package = str(Path(__file__).parents[1])
    return only_penstock(_cache() / "import" / hashlib.sha256(package.encode()).hexdigest()[:16])
