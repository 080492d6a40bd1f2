"""The typed view of rendered manifests: what will run, from any DGD.

`manifests.read` builds it; `explain`, `up` and `check` use nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any


class Role(StrEnum):
    """What a component does in the graph (DGD `type`, and v1alpha1 `subComponentType`)."""

    FRONTEND = "frontend"
    PREFILL = "prefill"
    DECODE = "decode"
    WORKER = "worker"  # aggregated: prefill and decode in one engine
    ENCODE = "encode"
    PLANNER = "planner"
    EPP = "epp"
    OTHER = "other"


WORKERS = (Role.PREFILL, Role.DECODE, Role.WORKER)


class Engine(StrEnum):
    TRTLLM = "trtllm"
    VLLM = "vllm"
    SGLANG = "sglang"
    LLAMACPP = "llamacpp"
    MOCKER = "mocker"

    @cached_property
    def module(self) -> str:
        """The Python module of its worker; that of llama.cpp is penstock's own."""
        return f"penstock.{self}" if self is Engine.LLAMACPP else f"dynamo.{self}"


@dataclass(frozen=True, kw_only=True)
class KnownConfig:
    """The engine configuration in its file, without the command line."""

    values: Mapping[str, Any]
    # The file in the container.
    path: str
    # Where its text is in the manifests: `ConfigMap/decode-config/decode.yaml`, or a heredoc.
    place: str


@dataclass(frozen=True, kw_only=True)
class UnknownConfig:
    """Configuration outside of the manifests, in the image or on a volume."""

    path: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class NoConfig:
    """The launch sets no engine configuration file."""


EngineConfig = KnownConfig | UnknownConfig | NoConfig


@dataclass(frozen=True, kw_only=True)
class Launch:
    """One process of a component, after shells, `$(VAR)` and `${VAR}` are resolved.

    A piece that only the cluster knows (a command substitution, the value of a Secret, a field
    reference) keeps its spelling in ``argv`` and ``env``.
    """

    # What is executed, program first.
    argv: tuple[str, ...]
    env: Mapping[str, str]
    # Names of the Secrets from which the environment takes values.
    secrets: tuple[str, ...] = ()
    cwd: str | None = None
    # Absolute path in the container → text, of the ConfigMap mounts and heredocs that it can read.
    files: Mapping[str, str] = field(default_factory=dict)
    # Absolute path → why the content is unknown, of the files that its arguments name.
    unknown_files: Mapping[str, str] = field(default_factory=dict)
    # Names of the environment variables whose value only the cluster knows.
    unknown_variables: tuple[str, ...] = ()
    # Whether variables come from a ConfigMap that is not in the file.
    has_unread_variables: bool = False
    # The `${VAR}` and `$(VAR)` that reach the program as text, since nothing expands them.
    unexpanded: tuple[str, ...] = ()
    # What only the cluster knows, for the reader.
    unresolved: tuple[str, ...] = ()
    # Whether a script starts it in one branch of several, so that another may run instead.
    is_conditional: bool = False
    # Whether the manifest starts it through a shell.
    shell: bool = False
    place: str = ""

    @property
    def module(self) -> str | None:
        """The Python module the process runs: `dynamo.trtllm` of `python3 -m dynamo.trtllm …`.

        Dynamo's modules are also found behind wrappers such as numactl and mpirun.
        """
        at = self._module_index
        return None if at is None else self.argv[at]

    @cached_property
    def arguments(self) -> tuple[str, ...]:
        """What follows the module, or the program if there is no module."""
        at = self._module_index
        return self.argv[1 if at is None else at + 1 :]

    @cached_property
    def _module_index(self) -> int | None:
        named = [at + 1 for at, part in enumerate(self.argv[:-1]) if part == "-m"]
        dynamos = [at for at in named if self.argv[at].startswith("dynamo.")]
        program = self.argv[0].rsplit("/", 1)[-1] if self.argv else ""
        of_program = [at for at in named if at == 2 and program.startswith("python")]
        return next(iter([*dynamos, *of_program]), None)


@dataclass(frozen=True, kw_only=True)
class Component:
    """One component of the graph."""

    name: str
    role: Role
    replicas: int
    # GPUs of one replica, on all its nodes.
    gpus: int
    nodes: int
    image: str
    # A pod may start several engines: one recipe runs eight workers in a pod. Launches of sidecars
    # are included only if they run a Dynamo module.
    launches: tuple[Launch, ...]
    engine: Engine | None
    engine_config: EngineConfig
    # The pod's termination grace period in seconds; the operator's default is 60.
    grace_s: int
    # The path in the manifest: `spec.components[2]`, `spec.services.decode`.
    place: str


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """One DynamoGraphDeployment."""

    name: str
    namespace: str
    api_version: str
    components: tuple[Component, ...]
    # The name of its file, for messages.
    source: str

    def component(self, name: str) -> Component:
        """The component called ``name``; KeyError lists the existing names."""
        for component in self.components:
            if component.name == name:
                return component
        raise KeyError(f"{name}: components are {', '.join(c.name for c in self.components)}")

    def with_role(self, *roles: Role) -> tuple[Component, ...]:
        return tuple(c for c in self.components if c.role in roles)

    @property
    def gpus(self) -> int:
        return sum(c.gpus * c.replicas for c in self.components)
