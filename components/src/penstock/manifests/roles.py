"""The engine and the role of a component: its launch decides, and its type otherwise."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.manifests.deployment import Component, Engine, EngineConfig, KnownConfig, Launch, Role
from penstock.manifests.flags import flag_value

_TYPES = {
    "frontend": Role.FRONTEND,
    "prefill": Role.PREFILL,
    "decode": Role.DECODE,
    "worker": Role.WORKER,
    "encode": Role.ENCODE,
    "planner": Role.PLANNER,
    "epp": Role.EPP,
}
# `pd` (prefill and decode in one engine) and SGLang's `null` are aggregated serving.
_MODES = {
    "prefill": Role.PREFILL,
    "decode": Role.DECODE,
    "encode": Role.ENCODE,
    "agg": Role.WORKER,
    "pd": Role.WORKER,
    "null": Role.WORKER,
    "prefill_and_decode": Role.WORKER,
}
_LEGACY = {
    "--is-prefill-worker": Role.PREFILL,
    "--is-decode-worker": Role.DECODE,
    "--multimodal-encode-worker": Role.ENCODE,
}
_MODULES = {"dynamo.frontend": Role.FRONTEND, "dynamo.planner": Role.PLANNER}
_ENGINE_ROLES = (Role.PREFILL, Role.DECODE, Role.WORKER, Role.ENCODE)


def engine_of(launches: Iterable[Launch]) -> tuple[Engine | None, Launch | None]:
    """The engine of the first launch that runs one, and that launch. Other programs of its package
    are none: the frontend of old releases began with dynamo.sglang.utils.clear_namespace."""
    for launch in launches:
        words = (launch.module or "").split(".")
        package = ".".join(words[:2]) if "utils" not in words[2:] else ""
        engine = next((engine for engine in Engine if engine.module == package), None)
        if engine is not None:
            return engine, launch
    return None, None


def role_of(
    kind: str,
    sub_kind: str,
    launches: tuple[Launch, ...],
    engine: Engine | None,
    config: EngineConfig,
) -> Role:
    """The role of one component by itself; `final_role` then considers the other components."""
    declared = _TYPES.get(kind, Role.OTHER)
    if declared in (Role.WORKER, Role.OTHER) and sub_kind in _TYPES:
        declared = _TYPES[sub_kind]
    _, launch = engine_of(launches)
    if launch is not None:
        if declared not in (Role.OTHER, *_ENGINE_ROLES):
            return declared
        configured = configured_role(launch, engine, config)
        return configured or (declared if declared in _ENGINE_ROLES else Role.WORKER)
    if declared is not Role.OTHER:
        return declared
    modules = [launch.module for launch in launches]
    return next((_MODULES[m] for m in modules if m in _MODULES), Role.OTHER)


def configured_role(launch: Launch, engine: Engine | None, config: EngineConfig) -> Role | None:
    """The role that the launch sets by a flag, an old flag, a variable or the engine's file."""
    mode = flag_value(launch.argv, "--disaggregation-mode")
    if mode is None and engine is not None:
        mode = launch.env.get(f"DYN_{engine.upper()}_DISAGGREGATION_MODE")
    if mode is None and isinstance(config, KnownConfig):
        configured = config.values.get(
            "disaggregation-mode", config.values.get("disaggregation_mode")
        )
        mode = configured if isinstance(configured, str) else None
    if mode is not None:
        return _MODES.get(mode)
    return next((role for flag, role in _LEGACY.items() if flag in launch.argv), None)


def final_role(component: Component, *, has_prefill: bool) -> Role:
    """The role of a component among the others of its deployment.

    A `decode` component that sets no mode is an aggregated worker if there is no prefill component:
    the engines default to agg, and recipes declare such workers `subComponentType: decode`.
    """
    if component.role is not Role.DECODE or has_prefill:
        return component.role
    _, launch = engine_of(component.launches)
    if (
        launch is None
        or configured_role(launch, component.engine, component.engine_config) is not None
    ):
        return component.role
    return Role.WORKER
