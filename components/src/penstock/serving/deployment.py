"""A deployment as it will run: its manifests, workers, router, GPU and model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.version import Version

from penstock.engines.flags import GivenFlag, given_flags
from penstock.engines.releases import DEPLOYED, RELEASES
from penstock.engines.settings import Location, Setting, read_settings
from penstock.hardware import Gpu
from penstock.manifests.deployment import WORKERS, Component, Deployment, Engine, Launch, Role
from penstock.manifests.documents import Cursor
from penstock.manifests.pods import Pod
from penstock.manifests.roles import configured_role
from penstock.models import ModelFacts, ModelShape, find_facts
from penstock.serving.worker import Worker, first_by_component
from penstock.text.values import as_mapping

if TYPE_CHECKING:
    from penstock.graph.slo import Slo

FRONTEND = "dynamo.frontend"
DEPLOYED_OPERATOR = Version(RELEASES[DEPLOYED].dynamo)


@dataclass(frozen=True, kw_only=True)
class ServingDeployment:
    # The DynamoGraphDeployment that the manifests declare.
    dgd: Deployment
    # The root of the document that holds it.
    root: Cursor
    # By component name.
    pods: Mapping[str, Pod]
    # All documents of the file, including those of other kinds.
    documents: tuple[Cursor, ...]
    # None if not stated.
    gpu: Gpu | None
    gpus_per_node: int | None
    # Number of nodes that the graph may use; None if not stated.
    gpu_nodes: int | None
    # None if the model's shape is unknown; `model_unknown` gives the reason.
    model: ModelShape | None
    model_unknown: str
    # The id or path of the first worker's model.
    model_name: str | None
    # The folder on this machine with the model's config.json; None if there is none.
    model_folder: Path | None
    # What is known of its layers; None if nothing is.
    facts: ModelFacts | None
    # `model.context_length` of the graph in tokens; None for a manifest.
    context_length: int | None
    # The graph's objectives; None for a manifest.
    slo: Slo | None
    is_graph: bool
    # The Dynamo operator's version, which does not depend on the images.
    operator: Version = DEPLOYED_OPERATOR

    @property
    def name(self) -> str:
        """The name of the DynamoGraphDeployment."""
        return self.dgd.name

    @property
    def spec(self) -> Mapping[str, Any]:
        """The spec of the DynamoGraphDeployment; empty if it is not a mapping."""
        return as_mapping(self.root["spec"].value)

    def annotations(self, component: str = "") -> Mapping[str, Any]:
        """Annotations of the deployment, or of one component's pods."""
        if not component:
            value = self.root.at("metadata", "annotations").value
        else:
            pod = self.pods[component].cursor
            value = pod.at("podTemplate", "metadata", "annotations").value
            if value is None:
                value = pod["annotations"].value or pod["extraPodMetadata"]["annotations"].value
        return as_mapping(value)

    @property
    def api_version(self) -> str:
        """The API version of the manifest, such as nvidia.com/v1beta1."""
        return self.dgd.api_version

    @property
    def components(self) -> tuple[Component, ...]:
        """The components in the order of the file."""
        return self.dgd.components

    @property
    def gpus(self) -> int:
        """GPUs of all replicas."""
        return self.dgd.gpus

    def component(self, name: str) -> Component:
        """The component called ``name``; KeyError lists the existing names."""
        return self.dgd.component(name)

    def with_role(self, *roles: Role) -> tuple[Component, ...]:
        """The components with one of the roles."""
        return self.dgd.with_role(*roles)

    @cached_property
    def workers(self) -> tuple[Worker, ...]:
        """Every engine process of the deployment."""
        return tuple(self._workers())

    def _workers(self) -> Iterator[Worker]:
        for component in self.components:
            if component.role not in WORKERS or component.engine is None:
                continue
            for launch in component.launches:
                if launch.module == component.engine.module:
                    yield Worker(
                        component=component,
                        launch=launch,
                        pod=self.pods[component.name],
                        settings=read_settings(component, launch),
                    )

    def facts_of(self, worker: Worker) -> ModelFacts | None:
        """What is known of the layers of the worker's own model."""
        named = worker.value("model")
        if named is None or str(named) == self.model_name or self.is_graph:
            return self.facts
        return find_facts(str(named))

    def processes(self, component: str) -> int:
        """Workers of one pod that run at the same time; of conditional launches only one runs."""
        conditional = [w.launch.is_conditional for w in self.workers if w.name == component]
        return conditional.count(False) + any(conditional)

    @cached_property
    def one_worker_per_component(self) -> tuple[Worker, ...]:
        """The first worker of each component that runs an engine."""
        engines = (worker for worker in self.workers if worker.engine is not Engine.MOCKER)
        return tuple(first_by_component(engines).values())

    def pool(self, *roles: Role) -> tuple[Worker, ...]:
        """The workers with one of the roles: prefill, decode, worker."""
        return tuple(w for w in self.workers if w.role in roles)

    @property
    def is_disaggregated(self) -> bool:
        """Whether KV is transferred: a prefill worker that has only the component type of one
        serves as an aggregated worker."""
        is_prefill = any(_starts_as_prefill(worker) for worker in self.pool(Role.PREFILL))
        return is_prefill and bool(self.pool(Role.DECODE))

    @property
    def shares_a_pod(self) -> bool:
        """Whether one pod runs both roles, which then use shared memory and NVLink."""
        names = {w.name for w in self.pool(Role.PREFILL)}
        return any(w.name in names for w in self.pool(Role.DECODE))

    @cached_property
    def pairs(self) -> tuple[tuple[Worker, Worker], ...]:
        """(prefill, decode) workers whose settings must agree: the first of each component."""
        first = first_by_component(self.workers).values()
        prefill = [worker for worker in first if worker.role is Role.PREFILL]
        decode = [worker for worker in first if worker.role is Role.DECODE]
        return tuple((p, d) for p in prefill for d in decode if p.engine is d.engine)

    @cached_property
    def frontends(self) -> tuple[tuple[Component, Launch, tuple[GivenFlag, ...]], ...]:
        """(component, launch, flags) of every frontend process."""
        return tuple(
            (component, launch, given_flags(FRONTEND, launch.arguments))
            for component in self.components
            for launch in component.launches
            if launch.module == FRONTEND
        )

    @cached_property
    def frontend_components(self) -> tuple[Component, ...]:
        """The components of type frontend that run Dynamo's frontend, or a program that is not
        known. Others, such as ModelExpress, have the type only for its Service and probes."""
        running = {component.name for component, _, _ in self.frontends}
        return tuple(
            component
            for component in self.with_role(Role.FRONTEND)
            if component.name in running or not component.launches
        )

    def router_setting(self, flag: str, variable: str) -> Setting | None:
        """The setting of the first frontend's router, by flag or variable; None if unset."""
        for component, launch, flags in self.frontends:
            for use in reversed(flags):
                if use.flag is not None and flag in use.flag.spellings:
                    return Setting(use.value, Location(component.name, "args", (use.spelling,)))
            if (text := launch.env.get(variable)) is not None:
                return Setting(text, Location(component.name, "env", (variable,)))
        return None

    @cached_property
    def router_mode(self) -> str:
        """The mode of the first frontend's router: round-robin, random, kv, direct, …"""
        setting = self.router_setting("--router-mode", "DYN_ROUTER_MODE")
        return str(setting.value) if setting else "round-robin"

    @cached_property
    def follows_kv_events(self) -> bool:
        """Whether the router uses the workers' KV events."""
        if self.router_mode != "kv":
            return False
        setting = self.router_setting("--router-kv-events", "DYN_ROUTER_USE_KV_EVENTS")
        return setting is None or str(setting.value).lower() not in ("false", "0", "no")

    def longest_prompt(self, worker: Worker) -> int | None:
        """Tokens of the longest prompt the worker must take: its context length or the model's."""
        configured = worker.count("context_length")
        return configured or (self.model.positions if self.model else 0) or None


def _starts_as_prefill(worker: Worker) -> bool:
    """Whether the command says prefill, or may say so in a part that is not known."""
    component = worker.component
    role = configured_role(worker.launch, component.engine, component.engine_config)
    return role is not None or not worker.settings.is_complete
