"""The gateway of a running graph: an Envoy in front of the endpoint that requires API keys.

Its keys and limits are in memory only. They change without a restart: streams continue. `up.py`
starts it after the graph, calls `step` while the graph runs, and stops it last.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import httpx

from penstock.errors import InputError, StartError
from penstock.gateway.envoy import (
    PROBE_HEADER,
    PROBE_PATH,
    Address,
    Certificate,
    LiveRoutes,
    LocalSetup,
    config,
)
from penstock.gateway.errors import largest_request
from penstock.gateway.keys import load_keys
from penstock.gateway.policy import Policy, policy_of_graph
from penstock.graph.gateway import GatewaySection
from penstock.local.file_watch import FileWatch
from penstock.local.probe import FirstCompletion, Prober
from penstock.local.process import child_environment
from penstock.local.run_envoy import DRAIN_S, EnvoyProcess, require_envoy, start_envoy
from penstock.local.state import MARKER
from penstock.local.state_file import GatewayStatus

NAME = "gateway"
RESTART_S = 1.0
APPLIED_S = 10.0
FIRST_COMPLETION_S = 60.0
POLL_S = 0.05
# Envoy reads these once. An edit of the others reaches it while it runs.
FIXED = ("retries", "max_parallel_requests", "timeouts.connect_s", "timeouts.upload_s")


@dataclass(frozen=True, kw_only=True)
class GatewayOptions:
    """The options of `penstock up --gateway`."""

    keys: Path
    certificate: Certificate | None = None


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where a gateway listens, forwards to, and writes."""

    listen: Address
    endpoint: Address
    folder: Path
    """For files without content, whose appearance makes Envoy read its routes again."""
    log: Path
    state: Path
    """State folder of the graph, which marks its processes."""


class LocalGateway:
    """``graph`` names the policy; ``say`` prints a line for the operator."""

    def __init__(
        self,
        graph: str,
        options: GatewayOptions,
        places: Places,
        section: GatewaySection,
        say: Callable[[str], None],
    ) -> None:
        self._graph, self._options, self._places, self._say = graph, options, places, say
        self._binary = require_envoy()
        self._watch = FileWatch(options.keys)  # before the first read: misses no save
        self._keys: Mapping[str, str] = load_keys(options.keys)
        self._section = section
        self._stack = contextlib.ExitStack()
        self._process: EnvoyProcess | None = None
        self._restart_at: float | None = None
        self._version = 0
        self._restarts = 0
        self._draining: list[asyncio.Task[None]] = []
        self._has_changed = False  # since `_write_routes`
        self._rejected: tuple[str, ...] = ()
        # Of penstock's own requests, which need no key.
        self._headers = {PROBE_HEADER: secrets.token_hex(16)}

    @property
    def url(self) -> str:
        scheme = "https" if self._options.certificate else "http"
        host = self._places.listen.host
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self._places.listen.port}"

    def summary(self) -> str:
        """One line for the operator: who may send how much."""
        limit = self._section.rate_limit
        per = "together" if limit and limit.per == "everyone" else "each"
        rate = f"{limit.requests} requests per {limit.unit} {per}" if limit else "no rate limit"
        count = len(self._keys)
        clients = f"API keys of {count} client{'' if count == 1 else 's'}"
        return f"{clients}, {rate}, requests up to {largest_request(self._policy.limits)}"

    async def start(self, *, disaggregated: bool) -> None:
        """Return after a completion for every model through Envoy.

        StartError when Envoy exits or does not apply its configuration.
        """
        self._places.folder.mkdir(parents=True, exist_ok=True)
        routes = os.memfd_create("routes.json")
        self._stack.callback(os.close, routes)
        self._live = LiveRoutes(
            descriptor=routes, folder=self._places.folder, probe=self._headers[PROBE_HEADER]
        )
        self._has_changed = False
        self._write_routes()
        self._launch()
        await self._until_applied()
        await self._complete_first(disaggregated)

    async def _complete_first(self, disaggregated: bool) -> None:
        prober = Prober(headers=self._headers, verify=False)
        first = FirstCompletion(prober, time.monotonic, self._raise_if_exited)
        deadline = time.monotonic() + FIRST_COMPLETION_S
        try:
            await first.complete_all([self.url], deadline, disaggregated=disaggregated)
        finally:
            await prober.close()

    def _raise_if_exited(self) -> None:
        if self._process is not None and self._process.exit_code() is not None:
            raise self._process.exit_error()

    async def step(self) -> None:
        """Restart a process that has exited, and apply a saved edit of the keys."""
        now = time.monotonic()
        if self._process is not None and self._process.exit_code() is not None:
            last, log = self._process.exit_error(), self._places.log
            self._say(f"{NAME}: {last}; restarting. Log: {log}")
            self._process, self._restart_at = None, now + RESTART_S
        if self._process is not None and self._process.is_terminated:
            self._hand_over(self._process)
        if self._restart_at is not None and now >= self._restart_at:
            self._restart_at = None
            self._restarts += 1
            self._launch()
        if self._watch.saved(now):
            self._reload_keys()
        if self._has_changed and self._process is not None:
            self._has_changed = False
            await self._apply()

    def _hand_over(self, before: EnvoyProcess) -> None:
        self._say(f"{NAME}: Envoy was sent SIGTERM: it drains, and another one starts")
        self._restarts += 1
        after = self._launch()
        work = asyncio.to_thread(before.hand_over_to, after, DRAIN_S)
        self._draining = [t for t in self._draining if not t.done()] + [asyncio.create_task(work)]

    def restore(self) -> None:
        """After the folder was deleted: Envoy watches the deleted one, so `step` starts another."""
        self._places.folder.mkdir(parents=True, exist_ok=True)
        if self._process is not None:
            self._process.end()

    def change(self, section: GatewaySection) -> None:
        """Take over an edit of the graph, in which no setting of `fixed_setting` differs.

        The next `step` applies it.
        """
        self._has_changed = self._has_changed or section != self._section
        self._section = section

    def status(self) -> GatewayStatus:
        return GatewayStatus(
            url=f"{self.url}/v1",
            pid=self._process.pid if self._process else 0,
            is_running=self._process is not None and self._process.exit_code() is None,
            restarts=self._restarts,
            clients=tuple(self._keys),
            summary=self.summary(),
            rejected_keys=self._rejected,
            log=str(self._places.log),
        )

    def stop(self) -> None:
        """End Envoy, which is the only process with the routes and their keys."""
        self._stack.close()
        self._process = None

    def _reload_keys(self) -> None:
        try:
            keys = load_keys(self._options.keys)
        except InputError as error:
            self._rejected = tuple(str(error).splitlines())
            self._say(f"keys rejected, the gateway still accepts the previous ones:\n{error}")
            return
        self._keys, self._rejected, self._has_changed = keys, (), True

    async def _apply(self) -> None:
        if self._process is not None:
            self._process.redact(self._keys)
        try:
            self._write_routes()
            await self._until_applied()
        except (OSError, StartError) as error:  # such as a full disk
            self._rejected = tuple(str(error).splitlines())
            self._say(str(error))
        else:
            self._say(f"{NAME}: {self.summary()}")

    def _write_routes(self) -> None:
        """Replace the content of the descriptor, and make Envoy read it."""
        self._version += 1
        routes = self._live.routes(self._policy, self._setup, self._version).encode()
        os.truncate(self._live.descriptor, 0)
        os.pwrite(self._live.descriptor, routes, 0)
        draft = self._places.folder.with_suffix(".draft")
        draft.touch()
        draft.replace(self._places.folder / "changed")

    def _launch(self) -> EnvoyProcess:
        """Start Envoy; a restarted one reads the current routes."""
        configuration = config(self._policy, self._setup, self._live.source())
        running = start_envoy(
            self._binary,
            configuration,
            self._keys,
            (self._live.descriptor,),
            self._write_log,
            child_environment({MARKER: str(self._places.state)}),
            self._places.folder,
        )
        self._process = self._stack.enter_context(running)
        return self._process

    def _write_log(self, line: str) -> None:
        with contextlib.suppress(OSError), self._places.log.open("a") as log:
            log.write(f"{line}\n")

    async def _until_applied(self) -> None:
        """Ask Envoy for the version of its routes until it is the written one."""
        deadline = time.monotonic() + APPLIED_S
        # verify: the certificate is the user's own, and the connection stays on this machine.
        async with httpx.AsyncClient(trust_env=False, verify=False, timeout=2) as client:  # noqa: S501
            while time.monotonic() < deadline:
                self._raise_if_exited()
                with contextlib.suppress(httpx.HTTPError):
                    answer = await client.get(self.url + PROBE_PATH, headers=self._headers)
                    if answer.text == str(self._version):
                        return
                await asyncio.sleep(POLL_S)
        raise StartError(f"the {NAME} did not apply its configuration within {APPLIED_S:.0f} s")

    @property
    def _policy(self) -> Policy:
        # The endpoint retries: both would multiply their retries.
        policy = policy_of_graph(self._section, self._graph, "local")
        return replace(policy, limits=policy.limits.model_copy(update={"retries": 0}))

    @property
    def _setup(self) -> LocalSetup:
        return LocalSetup(
            listen=self._places.listen,
            frontends={self._graph: self._places.endpoint},
            keys=self._keys,
            certificate=self._options.certificate,
        )


def fixed_setting(old: GatewaySection, new: GatewaySection) -> str:
    """The changed setting that a running gateway cannot apply; empty when there is none."""
    for place in FIXED:
        if _value(old, place) != _value(new, place):
            return f"gateway.{place}"
    return ""


def _value(section: GatewaySection, place: str) -> object:
    part: object = section
    for step in place.split("."):
        part = getattr(part, step)
    return part
