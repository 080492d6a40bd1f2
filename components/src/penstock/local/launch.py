"""From a Program to the argv and environment of one replica on this machine.

Everything that belongs to this run and not to the graph is added here: ports, folders, loopback.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import ManifestError, Problem
from penstock.local.deployment import Infrastructure, Program
from penstock.local.ports import LOOPBACK
from penstock.local.state import MARKER, StateDir
from penstock.manifests.deployment import Role


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """Where this run's infrastructure listens."""

    state: StateDir
    namespace: str
    infrastructure: Infrastructure
    broker_url: str = ""


def write_files(state: StateDir, program: Program) -> Mapping[str, Path]:
    """Lay the container's files out under the run's folder: container path → path here."""
    root = state.files / f"{program.name}-{program.key}"
    here: dict[str, Path] = {}
    for path, text in program.files.items():
        target = (root / path.lstrip("/")).resolve()
        if not target.is_relative_to(root.resolve()):
            # The manifest is somebody else's: `..` in it must not write over this user's files.
            raise ManifestError(
                Problem(place=program.name, message=f"the file {path!r} leads out of its folder")
            )
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        here[path] = target
    return here


def relocate(text: str, files: Mapping[str, Path]) -> str:
    """``text`` with every container path that has a file here replaced, the longest first."""
    if not files:
        return text
    paths = "|".join(re.escape(path) for path in sorted(files, key=len, reverse=True))
    return re.sub(rf"(?<![\w./-])(?:{paths})(?![\w-])", lambda m: str(files[m[0]]), text)


def fill(text: str, ports: Mapping[str, int]) -> str:
    """``text`` with this replica's own ports in place of `{port:NAME}`."""
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
    """The replica's argv; for a frontend argparse takes the last of two, so ours are appended."""
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
) -> dict[str, str]:
    """What the replica sees beside the user's own environment; the manifest's words first."""
    env = {name: fill(relocate(value, files), ports) for name, value in program.env.items()}
    env |= _planes(context) | _loopback() | _folders(context.state)
    env |= {"DYN_NAMESPACE": context.namespace, "PYTHONUNBUFFERED": "1"}
    env["DYN_SDK_DISABLE_ANSI_LOGGING"] = "1"  # the output is a file
    # An engine would sleep this long before it ends; `drain` has emptied it already.
    env["DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS"] = "0"
    if program.role is Role.FRONTEND:
        env["DYN_NAMESPACE_PREFIX"] = context.namespace
    if system_port is not None:
        env["DYN_SYSTEM_PORT"] = str(system_port)
    return env


def _planes(context: RunContext) -> dict[str, str]:
    infra = context.infrastructure
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
    if context.broker_url:
        env["DYN_ZMQ_BROKER_URL"] = context.broker_url
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
    """`up` downloads nothing, and what Dynamo caches under HOME goes with the run."""
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
