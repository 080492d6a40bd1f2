"""Traces of a graph on this machine: the receiver of `up --trace` and what processes get for it.

The processes send their spans, and the frontends also a record of each request, to a receiver in
the process of `up`. `penstock trace` reads what it stored, also after the graph went down.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from penstock.errors import NotUpError, PenstockError, UsageError
from penstock.local.deployment import Program
from penstock.local.file_kind import not_up_error
from penstock.local.ports import LOOPBACK
from penstock.local.state import StateDir
from penstock.manifests.deployment import Deployment, Role
from penstock.text.commands import command
from penstock.text.names import nearest
from penstock.tracing.requests import TracedRequest
from penstock.tracing.store import MOCKER_TRACES, TRACES, Receiver

ENABLED = "OTEL_EXPORT_ENABLED"
SAMPLE_RATIO = "OTEL_TRACES_SAMPLE_RATIO"
# What `tracing` in the graph sets in manifests, and what the settings of this machine replace.
VARIABLES = (
    ENABLED,
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT",
    "OTEL_EXPORTER_OTLP_PROTOCOL",
    "OTEL_SERVICE_NAME",
    SAMPLE_RATIO,
)
NOTE = "traces: recorded on this machine instead of sent to {endpoint}; see `penstock trace`"


def folder(state: StateDir) -> Path:
    """Where the receiver stores the traces; deleted when the graph starts again."""
    return state.logs / "traces"


def is_enabled(env: Mapping[str, str]) -> bool:
    """Dynamo's reading of the switch (`env_is_truthy`)."""
    return env.get(ENABLED, "").lower() in ("1", "true", "on", "yes")


def is_traced(deployment: Deployment) -> bool:
    """Whether a component exports traces on a cluster."""
    return any(is_enabled(launch.env) for c in deployment.components for launch in c.launches)


def without(env: Mapping[str, str]) -> dict[str, str]:
    """Without the export to another machine, if the environment switches it on."""
    if not is_enabled(env):
        return dict(env)
    return {name: value for name, value in env.items() if name not in VARIABLES}


def notes(deployment: Deployment) -> tuple[str, ...]:
    """For a traced deployment: where its traces go instead."""
    for component in deployment.components:
        for launch in component.launches:
            if is_enabled(launch.env):
                endpoint = launch.env.get(VARIABLES[2]) or launch.env.get(VARIABLES[1])
                return (NOTE.format(endpoint=endpoint or "their collector"),)
    return ()


def environment(url: str, program: Program) -> dict[str, str]:
    """Variables of one process; nothing without a receiver.

    The sampling ratio is 1, so that every request can be explained. The frontend's request
    records have the cached tokens and the end of prefill, which no span has.
    """
    if not url:
        return {}
    path = MOCKER_TRACES if program.is_mocker else TRACES
    env = {
        ENABLED: "true",
        "OTEL_EXPORTER_OTLP_ENDPOINT": url,
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{url}{path}",
        "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": f"{url}/v1/logs",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_SERVICE_NAME": program.component,
        SAMPLE_RATIO: "1.0",
        "OTEL_BSP_SCHEDULE_DELAY": "1000",
    }
    if program.role is Role.FRONTEND:
        env |= {"DYN_REQUEST_TRACE": "1", "DYN_REQUEST_TRACE_SINKS": "otel"}
    return env


@contextmanager
def receiving(state: StateDir, *, enabled: bool) -> Iterator[str]:
    """The URL of a receiver while the graph runs; empty if it is not traced."""
    if not enabled:
        yield ""
        return
    receiver = Receiver(folder(state), LOOPBACK)
    try:
        yield receiver.url
    finally:
        receiver.stop()


def require_traces(state: StateDir) -> None:
    """NotUpError if nothing was recorded: the graph was never up, or ran without traces."""
    if folder(state).is_dir():
        return
    again = command("up", state.source, "--trace")
    if state.is_locked():
        message = "the graph is up without traces"
        fix = f"Run {command('down', state.source)}, then {again}."
    elif state.logs.is_dir():
        message, fix = "the last run of the graph recorded no traces", f"Run {again}."
    else:
        raise not_up_error(state.source, "the graph was never up", f"Run {again}.")
    raise NotUpError(message, file=str(state.source), fix=fix)


def unknown_request(
    state: StateDir, requested: str, requests: Sequence[TracedRequest]
) -> PenstockError:
    """For an ID that no recorded request has; names the nearest one."""
    known = {r.request_id for r in requests} | {r.client_id for r in requests if r.client_id}
    guess = nearest(requested.removeprefix("chatcmpl-"), known)
    hint = f"Perhaps you meant {guess}. " if guess else ""
    return UsageError(
        f"none of {len(requests)} recorded requests has the ID {requested!r}; a "
        "request is recorded about 2 s after it ends",
        file=str(state.source),
        fix=f"{hint}List the IDs with {command('trace', state.source)}.",
    )
