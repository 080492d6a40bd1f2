"""Build a `ServingDeployment` from a source and the model files on this machine.

The GPU may also follow from the node labels that pods require.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import Version

from penstock.engines.settings import read_settings
from penstock.hardware import GPUS, Gpu, gpu_of_product
from penstock.manifests.deployment import WORKERS, Component, Deployment
from penstock.manifests.pods import Pod
from penstock.manifests.read import Manifest
from penstock.manifests.source import Source
from penstock.models import ModelFacts, ModelShape, find_facts, find_model, folder_of_model
from penstock.models.config import MissingConfigError, UnknownShapeError
from penstock.models.known import known_shape
from penstock.serving.deployment import DEPLOYED_OPERATOR, ServingDeployment

if TYPE_CHECKING:
    from penstock.graph.model import Graph

PRODUCT_LABELS = ("nvidia.com/gpu.product", "cloud.google.com/gke-accelerator")


def node_labels(pod: Pod, names: Sequence[str]) -> Iterator[str]:
    """The values of these labels that a node may have to get the pod."""
    return (value for name, value in all_node_labels(pod) if name in names)


def all_node_labels(pod: Pod) -> Iterator[tuple[str, str]]:
    """Each label that a node may have to get the pod, with its value."""
    selector = pod.spec.get("nodeSelector")
    if isinstance(selector, dict):
        yield from ((str(name), str(value)) for name, value in selector.items())
    yield from _affinity(pod.spec.get("affinity"))


def _affinity(value: object) -> Iterator[tuple[str, str]]:
    """The labels and values of all match expressions in an affinity."""
    if isinstance(value, list):
        for item in value:
            yield from _affinity(item)
    elif isinstance(value, dict):
        if value.get("operator") == "In":
            values = value.get("values")
            for label in values if isinstance(values, list) else ():
                yield str(value.get("key")), str(label)
        for item in value.values():
            yield from _affinity(item)


@dataclass(frozen=True, kw_only=True)
class Hints:
    """Facts given on the command line that a manifest may not state."""

    # A name in `penstock.hardware.GPUS`.
    gpu: str | None = None
    # Folder with the model's config.json.
    model_folder: Path | None = None
    operator: Version = DEPLOYED_OPERATOR


def understand(source: Source, hints: Hints) -> ServingDeployment:
    graph = source.loaded.graph if source.loaded is not None else None
    hardware = graph.hardware if graph is not None else None
    name = hints.gpu or (hardware.gpu if hardware else None)
    gpu = GPUS[name] if name else _gpu_of(source.manifest)
    model_name = _name(source)
    folders = _folders(graph, model_name, hints)
    model, reason, facts = _model(model_name, folders)
    per_node = hardware.gpus_per_node if hardware else None
    return ServingDeployment(
        dgd=source.deployment,
        root=source.manifest.root,
        pods=source.manifest.pods,
        documents=source.manifest.documents,
        gpu=gpu,
        gpus_per_node=per_node or (gpu.gpus_per_node if gpu else None),
        gpu_nodes=hardware.nodes if hardware else None,
        model=model,
        model_unknown=reason,
        model_name=model_name,
        model_folder=_folder(folders),
        facts=facts,
        context_length=graph.model.context_length if graph is not None else None,
        slo=graph.slo if graph is not None else None,
        is_graph=graph is not None,
        operator=hints.operator,
    )


def _gpu_of(manifest: Manifest) -> Gpu | None:
    """The GPU that the workers' node selectors name, if they name exactly one."""
    products = (
        product for pod in manifest.pods.values() for product in node_labels(pod, PRODUCT_LABELS)
    )
    gpus = {gpu.name: gpu for name in products if (gpu := gpu_of_product(name)) is not None}
    return next(iter(gpus.values())) if len(gpus) == 1 else None


def _model(
    name: str | None, folders: Sequence[Path]
) -> tuple[ModelShape | None, str, ModelFacts | None]:
    """The model's shape, or the reason why it is unknown; and what is known in both cases."""
    if name is None:
        return None, "no worker in the manifests sets a model", None
    facts = find_facts(name, *folders)
    try:
        return find_model(name, *folders), "", facts
    except MissingConfigError as error:
        return known_shape(name), str(error), facts
    except UnknownShapeError as error:  # the config.json that is used states another model
        return None, str(error), facts


def _folders(graph: Graph | None, name: str | None, hints: Hints) -> list[Path]:
    """Where the model's config.json may be, the first that has one counts."""
    path = graph.model.path if graph is not None else None
    named = (hints.model_folder, Path(path) if path else None, Path(name) if name else None)
    return [folder for folder in named if folder is not None]


def _folder(folders: Sequence[Path]) -> Path | None:
    try:
        return folder_of_model(*folders)
    except OSError:  # `_model` reports it
        return None


def _name(source: Source) -> str | None:
    graph = source.loaded.graph if source.loaded is not None else None
    return graph.model.id if graph is not None else _model_name(source.deployment)


def _model_name(deployment: Deployment) -> str | None:
    """The model of the first worker: an id, or the path of a cache, which contains the id."""
    for component in deployment.components:
        if component.role in WORKERS and component.engine is not None:
            return _named_by(component)
    return None


def _named_by(component: Component) -> str | None:
    for launch in component.launches:
        settings = read_settings(component, launch)
        if setting := settings.common("model"):
            return str(setting.value)
    return None
