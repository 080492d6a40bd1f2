"""What replaces vLLM's flag --connector, which Dynamo 1.0 removed, and its variable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from penstock.checks.finding import Fix
from penstock.engines.flags import GivenFlag
from penstock.manifests.deployment import Role
from penstock.serving.deployment import ServingDeployment

FLAG, VARIABLE = "--connector", "DYN_CONNECTOR"
NONE = ("none", "null")
KVBM = "kvbm.vllm_integration.connector"
# `_connector_to_kv_transfer_json` in dynamo/vllm/args.py of 1.6.1.
CONNECTORS: Mapping[str, Mapping[str, str]] = {
    "lmcache": {"kv_connector": "LMCacheConnectorV1"},
    "flexkv": {"kv_connector": "FlexKVConnectorV1"},
    "nixl": {"kv_connector": "NixlConnector"},
    "kvbm": {"kv_connector": "DynamoConnector", "kv_connector_module_path": KVBM},
}
NIXL_ROLES = {Role.PREFILL: "kv_producer", Role.DECODE: "kv_consumer"}


def names_connector(flag: GivenFlag | None) -> bool:
    """Whether the flag asks for a connector."""
    return flag is not None and bool(_named(_words(flag)))


def instead_of_flag(deployment: ServingDeployment, component: str, flag: GivenFlag) -> Fix:
    """What to write instead of the flag."""
    return _fix(deployment, component, FLAG, _named(_words(flag)))


def instead_of_variable(deployment: ServingDeployment, component: str, text: str) -> Fix:
    """What to write instead of the variable."""
    fix = _fix(deployment, component, VARIABLE, _named(text.split()))
    return replace(fix, env={VARIABLE: None}, replaces=None)


def _fix(deployment: ServingDeployment, component: str, name: str, names: Sequence[str]) -> Fix:
    worker = next((w for w in deployment.workers if w.name == component), None)
    if not names:
        return Fix(text=f"Remove {name}; without it there is no connector.")
    if worker is not None and worker.get("kv-transfer-config") is not None:
        return Fix(text=f"Remove {name}; --kv-transfer-config names the connector.")
    if worker is None or any(word not in CONNECTORS for word in names):
        return Fix(text=f"Use --kv-transfer-config instead of {name}.")
    config = {"kv-transfer-config": _transfer_config(names, worker.role)}
    text = f"Replace {name} with --kv-transfer-config."
    return Fix(text=text, config=config, replaces=name)


def _words(flag: GivenFlag) -> tuple[str, ...]:
    return ((flag.text or ""), *flag.more)


def _named(words: Sequence[str]) -> list[str]:
    return [word.lower() for word in words if word and word.lower() not in NONE]


def _transfer_config(names: Sequence[str], role: Role) -> dict[str, Any]:
    """Several connectors become one PdConnector."""
    roles = {"nixl": NIXL_ROLES.get(role, "kv_both")}
    parts = [{**CONNECTORS[name], "kv_role": roles.get(name, "kv_both")} for name in names]
    if len(parts) == 1:
        return parts[0]
    return {
        "kv_connector": "PdConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"connectors": parts},
        "kv_connector_module_path": KVBM,
    }
