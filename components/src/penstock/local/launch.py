"""The argv, files and environment of one replica of a Program.

Adds what belongs to this run and not to the graph: ports, folders, loopback addresses.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import ManifestError
from penstock.files import write_file
from penstock.local import tracing
from penstock.local.deployment import Program
from penstock.local.gpus.gpu import VARIABLE
from penstock.local.ports import LOOPBACK
from penstock.local.services import Services
from penstock.local.state import MARKER, StateDir
from penstock.manifests.deployment import Role

# A process exits if etcd is unreachable until its lease expires (Dynamo's default: 10 s). A long
# lease does not delay cleanup: `up` removes the records of processes that have ended.
LEASE_S = 30
# Without a line for each probe of `up`, several a second. A client's request has lines of another
# target, `dynamo_llm::http::service::metrics`.
FRONTEND_LOG = "info,dynamo_llm::http::service::service_v2=warn"


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """What all replicas of one run share."""

    state: StateDir
    services: Services
    namespace: str


def write_files(state: StateDir, program: Program) -> Mapping[str, Path]:
    """Write the container's files into the run's folder; container path → local path."""
    root = state.files / f"{program.name}-{program.key}"
    local_paths: dict[str, Path] = {}
    for path, text in program.files.items():
        target = (root / path.lstrip("/")).resolve()
        if not target.is_relative_to(root.resolve()):
            # A foreign manifest must not overwrite the user's files with `..`.
            raise ManifestError(
                f"the path of file {path!r} leaves the run's folder",
                place=program.name,
                fix="Use a path without `..` for the file and its mount.",
            )
        target.parent.mkdir(parents=True, exist_ok=True)
        write_file(target, text)
        local_paths[path] = target
    return local_paths


def relocate(text: str, files: Mapping[str, Path]) -> str:
    """``text`` with the paths of ``files`` replaced by the local ones, longest first."""
    if not files:
        return text
    paths = "|".join(re.escape(path) for path in sorted(files, key=len, reverse=True))
    return re.sub(rf"(?<![\w./-])(?:{paths})(?![\w-])", lambda m: str(files[m[0]]), text)


def fill(text: str, ports: Mapping[str, int]) -> str:
    """``text`` with each `{port:NAME}` replaced by this replica's port."""
    for name, port in ports.items():
        text = text.replace(f"{{port:{name}}}", str(port))
    return text


def arguments(
    program: Program,
    files: Mapping[str, Path],
    ports: Mapping[str, int],
    *,
    host: str,
    port: int | None,
) -> list[str]:
    """The replica's argv. A frontend's host and port are appended: argparse uses the last value."""
    argv = [fill(relocate(part, files), ports) for part in program.argv]
    if program.role is Role.FRONTEND:
        argv += ["--http-host", host, "--http-port", str(port)]
    return argv


def environment(
    program: Program,
    files: Mapping[str, Path],
    ports: Mapping[str, int],
    context: RunContext,
    system_port: int | None,
    gpus: tuple[int, ...] = (),
) -> dict[str, str]:
    """Variables to add to the user's environment: the manifest's, then those of this run."""
    env = {name: fill(relocate(value, files), ports) for name, value in program.env.items()}
    env |= _planes(context) | _loopback() | _folders(context.state)
    env |= tracing.environment(context.services.traces_url, program)
    if context.services.infrastructure.discovery == "etcd":
        env.setdefault("ETCD_LEASE_TTL", str(LEASE_S))
    env |= {"DYN_NAMESPACE": context.namespace, "PYTHONUNBUFFERED": "1"}
    env["DYN_SDK_DISABLE_ANSI_LOGGING"] = "1"  # the output is a file
    # An engine would sleep this long before it exits; `drain` has already emptied it.
    env["DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS"] = "0"
    if program.role is Role.FRONTEND:
        env["DYN_NAMESPACE_PREFIX"] = context.namespace
        env.setdefault("DYN_LOG", FRONTEND_LOG)
    if gpus:
        # Not UUIDs: some engines convert the entries to integers.
        env |= {VARIABLE: ",".join(map(str, gpus)), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    if system_port is not None:
        env["DYN_SYSTEM_PORT"] = str(system_port)
    return env


def _planes(context: RunContext) -> dict[str, str]:
    infra = context.services.infrastructure
    env = {
        "DYN_DISCOVERY_BACKEND": infra.discovery,
        "DYN_EVENT_PLANE": infra.events,
        "DYN_REQUEST_PLANE": infra.requests,
    }
    if infra.discovery == "etcd":
        env["ETCD_ENDPOINTS"] = ",".join(infra.etcd_endpoints)
    else:
        env["DYN_FILE_KV"] = str(context.state.discovery)
    if "nats" in (infra.events, infra.requests):
        env["NATS_SERVER"] = infra.nats_url
    if context.services.broker_url:
        env["DYN_ZMQ_BROKER_URL"] = context.services.broker_url
    return env


def _loopback() -> dict[str, str]:
    names = (
        "DYN_TCP_RPC_HOST",
        "DYN_TCP_RESPONSE_STREAM_HOST",
        "DYN_SYSTEM_HOST",
        "DYN_EVENT_PLANE_HOST",
        "DYN_HTTP_RPC_HOST",
    )
    return dict.fromkeys(names, LOOPBACK)


def _folders(state: StateDir) -> dict[str, str]:
    """`up` downloads nothing, and what Dynamo caches under HOME is deleted with the run."""
    home = Path.home()
    hub = os.environ.get("HF_HOME") or str(home / ".cache" / "huggingface")
    return {
        MARKER: str(state.path),
        "HF_HOME": hub,
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "HOME": str(state.scratch),
        "TMPDIR": str(state.scratch),
    }
