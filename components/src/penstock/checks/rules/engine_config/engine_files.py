"""Engine files of TensorRT-LLM and llama.cpp: their values, and what the engine refuses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.version_range import Versions
from penstock.engines.trtllm_arguments import Kind, Refusal, refused_settings
from penstock.engines.trtllm_history import ADDED, EARLIER_VALUES, AddedKey
from penstock.environments.packaged_models import packaged_ids
from penstock.manifests.deployment import Engine, KnownConfig
from penstock.serving.deployment import ServingDeployment
from penstock.serving.versions import DEPLOYED_RELEASE, shown
from penstock.serving.worker import Worker
from penstock.text.values import as_mapping, positive_int

if TYPE_CHECKING:
    from penstock.llamacpp.config import InvalidOption


# The first TensorRT-LLM whose keys and values were read completely.
FIRST_READ = "1.3.0rc22"
# Keys without effect in a Dynamo worker (dynamo/trtllm/workers/llm_worker.py 1.6.1), and why.
WITHOUT_EFFECT = {
    "num_postprocess_workers": "Dynamo removes it with a warning",
    "num_serve_frontends": "it is an option of trtllm-serve",
    "reasoning_parser": "it is an option of trtllm-serve; with Dynamo use --dyn-reasoning-parser",
}


def engine_file(worker: Worker) -> Mapping[str, Any] | None:
    """The values of a TensorRT-LLM worker's engine file; None if there is none, or if it is not
    in the manifests."""
    config = worker.component.engine_config
    return config.values if worker.is_trtllm and isinstance(config, KnownConfig) else None


def file_value(worker: Worker, key: str | None) -> Any:
    """The value of a dotted key in the engine file; None if it has no such key."""
    return value_at(as_mapping(engine_file(worker)), (key or "").split("."))


def value_at(tree: Any, path: Iterable[str | int]) -> Any:
    """The value at a path of keys; None if there is none."""
    return reduce(lambda node, step: as_mapping(node).get(str(step)), path, tree)


def graph_sizes(worker: Worker) -> list[int]:
    """The batch sizes for which CUDA graphs are requested one by one."""
    sizes = worker.get("cuda_graph_config.batch_sizes")
    return [n for s in sizes if (n := positive_int(s))] if isinstance(sizes, list) else []


def usable_sizes(sizes: list[int], batch: int | None) -> list[int]:
    """The sizes up to ``batch``, with ``batch`` itself in place of larger ones."""
    if batch is None or not any(size > batch for size in sizes):
        return sizes
    return [size for size in sizes if size < batch] + [batch]


def unknown_key(deployment: ServingDeployment) -> Iterator[RuleResult]:
    for worker, setting in _refused(deployment, Kind.UNKNOWN):
        added = ADDED.get(".".join(map(str, setting.path)))
        is_coming = added is not None and added.dynamo > DEPLOYED_RELEASE
        yield from _results(worker, setting, _before(added) if added and is_coming else None)
    yield from _too_new(deployment)


def _too_new(deployment: ServingDeployment) -> Iterator[RuleResult]:
    """Keys of the current TensorRT-LLM that an older image does not have."""
    for worker in deployment.workers:
        for key, added in ADDED.items() if engine_file(worker) is not None else ():
            setting, dynamo = worker.settings.get(key), shown(added.dynamo)
            if added.dynamo <= DEPLOYED_RELEASE and setting and setting.location.what == "config":
                yield RuleResult(
                    location=setting.location,
                    message=f"{key} requires TensorRT-LLM {added.since} (Dynamo {dynamo})",
                    fix=Fix(text=f"Remove {key}, or use an image of Dynamo {dynamo} or later."),
                    versions=_before(added),
                )


def _before(added: AddedKey) -> Versions:
    """The releases that lack a key."""
    return Versions(dynamo=f">=1.0,<{shown(added.dynamo)}")


def invalid_value(deployment: ServingDeployment) -> Iterator[RuleResult]:
    for worker, setting in _refused(deployment, Kind.VALUE):
        key = ".".join(map(str, setting.path))
        first = EARLIER_VALUES.get((key, str(file_value(worker, key))))
        yield from _results(worker, setting, Versions(dynamo=f">={first}") if first else None)


def removed_key(deployment: ServingDeployment) -> Iterator[RuleResult]:
    for worker, setting in _refused(deployment, Kind.REMOVED):
        yield from _results(worker, setting, Versions(dynamo=f">={shown(setting.dynamo)}"))


def _refused(deployment: ServingDeployment, kind: Kind) -> Iterator[tuple[Worker, Refusal]]:
    for worker in deployment.workers:
        for refusal in refused_settings(engine_file(worker) or {}):
            if refusal.kind is kind and str(refusal.path[0]) not in WITHOUT_EFFECT:
                yield worker, refusal


def _results(
    worker: Worker, setting: Refusal, versions: Versions | None = None
) -> Iterator[RuleResult]:
    """The result as an error in ``versions`` (None: those of the rule). A key or value that
    resembles no known one may exist in an older TensorRT-LLM than those whose keys were read, so
    for these it is a warning."""
    result = RuleResult(
        location=worker.location("config", *setting.path),
        message=setting.message,
        fix=Fix(text=setting.fix, config=setting.config, replaces=setting.replaces),
        versions=versions,
    )
    if not setting.is_of_others:
        yield result
        return
    yield replace(result, versions=Versions(trtllm=f">={FIRST_READ}"))
    message = f"{setting.message} (compared with TensorRT-LLM {FIRST_READ})"
    earlier = Versions(trtllm=f"<{FIRST_READ}")
    yield replace(result, message=message, versions=earlier, level=Level.WARNING)


GGUF = b"GGUF"
NO_GGUF = "is not a GGUF file"


def invalid_llamacpp_options(worker: Worker) -> tuple[InvalidOption, ...]:
    """The options of the engine's file that the llama.cpp worker does not accept."""
    config = worker.component.engine_config
    if worker.engine is not Engine.LLAMACPP or not isinstance(config, KnownConfig):
        return ()
    from penstock.llamacpp.config import invalid_options  # it imports pydantic

    return tuple(invalid_options(config.values))


def gguf_problem(model: object) -> str | None:
    """Why llama.cpp cannot load a model on this machine; None if it can, or without a model."""
    if model is None or str(model) in packaged_ids("gguf"):
        return None
    path = Path(str(model)).expanduser()
    if not path.is_file():
        return f"is {'a folder' if path.is_dir() else 'no file'} on this machine"
    try:
        with path.open("rb") as stream:
            return None if stream.read(len(GGUF)) == GGUF else NO_GGUF
    except OSError as error:
        return f"cannot be read: {error.strerror}"
