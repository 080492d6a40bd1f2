"""The rules about the configuration and the model of penstock's own llama.cpp worker."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.engines.settings import Location
from penstock.environments.packaged_models import packaged_ids
from penstock.manifests.deployment import Engine, KnownConfig
from penstock.manifests.source import LOCAL_IMAGE
from penstock.serving.deployment import ServingDeployment
from penstock.shipped import page

if TYPE_CHECKING:
    from penstock.llamacpp.config import InvalidOption

GGUF = b"GGUF"


def invalid_llamacpp_option(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        config = worker.component.engine_config
        if worker.engine is Engine.LLAMACPP and isinstance(config, KnownConfig):
            from penstock.llamacpp.config import invalid_options  # it imports pydantic

            for option in invalid_options(config.values):
                yield RuleResult(
                    location=worker.location("config", *option.path),
                    message=str(option),
                    fix=_fix(option, config),
                )


def missing_gguf_file(deployment: ServingDeployment) -> Iterable[RuleResult]:
    workers = [w for w in deployment.workers if w.engine is Engine.LLAMACPP]
    if not deployment.is_graph or not workers:
        return
    model = workers[0].settings.common("model")
    if model is None or workers[0].component.image != LOCAL_IMAGE:
        return
    problem, level = _file_problem(str(model.value))
    if problem:
        by_id = str(model.value) == deployment.model_name
        yield RuleResult(
            location=Location("", "graph", ("model", "id" if by_id else "path")),
            message=f"{str(model.value)!r} {problem}",
            fix=Fix(
                text="Set model.path to a GGUF file on this machine, or model.id to "
                f"{' or '.join(packaged_ids('gguf'))}, which is packaged."
            ),
            level=level,
        )


def _file_problem(model: str) -> tuple[str, Level]:
    if model in packaged_ids("gguf"):
        return "", Level.ERROR
    path = Path(model).expanduser()
    if not path.is_file():
        return f"is {'a folder' if path.is_dir() else 'no file'} on this machine", Level.WARNING
    try:
        with path.open("rb") as stream:
            beginning = stream.read(len(GGUF))
    except OSError as error:
        return f"cannot be read: {error.strerror}", Level.WARNING
    return ("" if beginning == GGUF else "is not a GGUF file"), Level.ERROR


def _fix(option: InvalidOption, config: KnownConfig) -> Fix:
    key = ".".join(option.path)
    if option.fix:
        return Fix(text=option.fix)
    if not option.near:
        return Fix(text=f"Correct or remove {key}; {page('llamacpp')} lists the options.")
    renamed = ".".join((*option.path[:-1], option.near))
    value = config.values
    for step in option.path:
        value = value[step]
    return Fix(text=f"Rename {key} to {renamed}.", config={renamed: value}, replaces=key)
