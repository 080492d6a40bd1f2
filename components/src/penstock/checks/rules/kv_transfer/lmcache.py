"""Rules about LMCache, a KV connector of vLLM and SGLang."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.as_mapping import as_mapping
from penstock.checks.finding import Fix, RuleResult
from penstock.checks.rules.kv_transfer.vllm_connectors import connector_of
from penstock.engines.settings import Location
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker
from penstock.strict_yaml.loader import load

CONFIG_FILE, SEED = "LMCACHE_CONFIG_FILE", "PYTHONHASHSEED"
PORT_LISTS = ("p2p_init_ports", "p2p_lookup_ports", "lmcache_worker_ports")
# The dynamo.vllm flag of releases before 1.0.
OLD_FLAG = ("--connector",)


@dataclass(frozen=True)
class LMCacheSettings:
    """The keys that the rules need, from LMCache's file and its variables."""

    worker: Worker
    file: Mapping[Any, Any]

    def get(self, key: str) -> Any:
        text = self.worker.env(f"LMCACHE_{key.upper()}")
        return self.file.get(key) if text is None else text

    def is_on(self, key: str) -> bool:
        return str(self.get(key)).strip().lower() in ("true", "1", "yes", "on")

    def ports(self, key: str) -> list[Any] | None:
        value = self.get(key)
        if isinstance(value, str):
            return [item for item in value.strip("[]").split(",") if item.strip()]
        return value if isinstance(value, list) else None

    def location(self, deployment: ServingDeployment, key: str) -> Location:
        """In the ConfigMap that holds the file, or the variable."""
        if self.worker.env(f"LMCACHE_{key.upper()}") is not None:
            return self.worker.location("env", f"LMCACHE_{key.upper()}")
        text = _text(self.worker)
        for index, document in enumerate(deployment.documents):
            data = document["data"].value
            for name, value in data.items() if isinstance(data, Mapping) else ():
                if value == text:
                    return Location("", "document", (index, "data", str(name), key))
        return self.worker.location("env", CONFIG_FILE)


def _text(worker: Worker) -> str | None:
    path = worker.env(CONFIG_FILE)
    return worker.launch.files.get(path) if path else None


def lmcache_workers(deployment: ServingDeployment) -> Iterator[LMCacheSettings]:
    """The workers that use LMCache, and whose settings of it are known."""
    for worker in deployment.workers:
        if not _uses_lmcache(worker) or worker.launch.has_unread_variables:
            continue
        text = _text(worker)
        if text is None and worker.env(CONFIG_FILE) is not None:
            continue  # a file in the image or on a volume
        try:
            file = load(text) if text is not None else {}
        except ValueError:
            continue
        yield LMCacheSettings(worker, as_mapping(file))


def _uses_lmcache(worker: Worker) -> bool:
    connector = connector_of(worker)
    if connector is not None:
        return any(one.name == "LMCacheConnectorV1" for one in connector.walk())
    flag = worker.flag(*OLD_FLAG)
    return flag is not None and "lmcache" in str(flag.value)


def too_few_ports(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for settings in lmcache_workers(deployment):
        worker, facts = settings.worker, deployment.facts_of(settings.worker)
        ranks = worker.tp * worker.pp
        if facts is None or facts.is_mla or not worker.is_laid_out:
            continue  # with MLA only the first rank opens ports
        needed = ("enable_p2p", "enable_p2p", "enable_controller")
        for key, switch in zip(PORT_LISTS, needed, strict=True):
            ports = settings.ports(key)
            if settings.is_on(switch) and ports is not None and len(ports) < ranks:
                yield RuleResult(
                    location=settings.location(deployment, key),
                    message=f"{key} has {len(ports)} "
                    f"{'entry' if len(ports) == 1 else 'entries'}, but {worker.name} has {ranks} "
                    "ranks",
                    fix=Fix(text=f"List {ranks} ports in {key}."),
                )


def no_hash_seed(deployment: ServingDeployment) -> Iterable[RuleResult]:
    settings = tuple(lmcache_workers(deployment))
    shared = [s for s in settings if s.get("remote_url") or s.is_on("enable_p2p")]
    components = {s.worker.name: s.worker.component for s in shared}
    if sum(component.replicas for component in components.values()) < 2:
        return
    for one in shared:
        launch = one.worker.launch
        if one.worker.env(SEED) is None and SEED not in launch.unknown_variables:
            key = "remote_url" if one.get("remote_url") else "enable_p2p"
            yield RuleResult(
                location=one.worker.location("env", SEED),
                message=f"{one.worker.name} shares LMCache ({key}) with other workers and does "
                f"not set {SEED}",
                fix=Fix(text=f"Set {SEED}=0 on all workers.", env={SEED: "0"}),
            )
