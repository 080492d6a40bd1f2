"""HTTP probes of running processes: readiness, worker id, requests in flight, completions."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx

from penstock.errors import StartError

POLL_S = 0.2
_WORKER_ID = re.compile(
    r'^dynamo_component_uptime_seconds\{[^}]*worker_id="([0-9a-f]+)"', re.MULTILINE
)
_INFLIGHT = re.compile(
    r"^dynamo_component_inflight_requests(?:\{[^}]*\})? ([0-9.e+]+)$", re.MULTILINE
)


@dataclass(frozen=True, kw_only=True)
class WorkerStatus:
    """A worker's metrics."""

    worker_id: int
    inflight: int
    """Requests that the worker has begun and not finished."""


@dataclass(frozen=True, kw_only=True)
class Completion:
    """A successful chat completion."""

    prefill_worker: int | None
    """Worker id; None when no prefill worker took part."""


@dataclass(frozen=True, kw_only=True)
class CompletionFailure:
    """No completion came back."""

    reason: str


class Prober:
    """The HTTP client of a run. A probe returns None after ``timeout_s`` without a response."""

    def __init__(
        self,
        timeout_s: float = 2.0,
        headers: Mapping[str, str] | None = None,
        *,
        verify: bool = True,
    ) -> None:
        # trust_env=False: a proxy in the user's environment must not see loopback.
        self._timeout_s = timeout_s
        self._client = httpx.AsyncClient(
            timeout=timeout_s, trust_env=False, headers=headers, verify=verify
        )

    async def close(self) -> None:
        await self._client.aclose()

    async def _get(self, url: str, method: str = "GET") -> httpx.Response | None:
        try:
            return await self._client.request(method, url)
        except httpx.HTTPError:
            return None

    async def worker(self, system_port: int) -> WorkerStatus | None:
        response = await self._get(f"http://127.0.0.1:{system_port}/metrics")
        worker_id = _WORKER_ID.search(response.text) if response is not None else None
        if response is None or worker_id is None:
            return None
        return WorkerStatus(
            worker_id=int(worker_id.group(1), 16), inflight=_inflight(response.text)
        )

    async def responds(self, url: str, method: str = "GET") -> bool:
        """Whether an HTTP server responds, with any status."""
        return await self._get(url, method) is not None

    async def greets(self, host: str, port: int) -> bool:
        """Whether the server at ``port`` sends something to a client that connects.

        The kernel accepts connections for a process that is suspended, so connecting shows nothing.
        """
        writer = None
        try:
            async with asyncio.timeout(self._timeout_s):
                reader, writer = await asyncio.open_connection(host, port)
                return bool(await reader.read(1))
        except OSError:  # TimeoutError is one
            return False
        finally:
            if writer is not None:
                writer.close()

    async def frontend_ready(self, base: str) -> bool:
        response = await self._get(f"{base}/health")
        return response is not None and response.status_code == 200

    async def models(self, base: str) -> tuple[str, ...] | None:
        """None without a response that lists models; an empty list is a response."""
        response = await self._get(f"{base}/v1/models")
        if response is None or response.status_code != 200:
            return None
        try:
            return tuple(str(model["id"]) for model in response.json()["data"])
        except (ValueError, LookupError, TypeError):
            return None

    async def ready_namespaces(self, base: str) -> frozenset[str] | None:
        """The Dynamo namespaces to whose workers a frontend routes; None if the frontend
        does not report them."""
        namespaces_ready: set[str] = set()
        for model in await self.models(base) or ():
            response = await self._get(f"{base}/v1/models/{quote(model, safe='')}/ready")
            if response is None:
                return frozenset()  # no response: assume that it does not route to them yet
            if response.status_code == 404:
                return None
            try:
                namespaces = response.json()["namespaces"].items()
                namespaces_ready |= {name for name, state in namespaces if state["ready"]}
            except (ValueError, LookupError, TypeError, AttributeError):
                return None
        return frozenset(namespaces_ready)

    async def completion(self, base: str, model: str) -> Completion | CompletionFailure:
        """Send one short chat completion."""
        body: dict[str, Any] = {
            "model": model,
            "messages": [{"role": "user", "content": "Is the water running?"}],
            "max_tokens": 4,
            "nvext": {"extra_fields": ["worker_id"]},
        }
        try:
            response = await self._client.post(f"{base}/v1/chat/completions", json=body, timeout=60)
        except httpx.HTTPError as error:
            return CompletionFailure(reason=f"no response: {error!r}")
        if response.status_code != 200:
            reason = f"HTTP {response.status_code}: {response.text[:300]}"
            return CompletionFailure(reason=reason)
        content = response.json()
        workers = (content.get("nvext") or {}).get("worker_id") or {}
        return Completion(prefill_worker=workers.get("prefill_worker_id"))


def _inflight(metrics: str) -> int:
    return int(sum(float(count) for count in _INFLIGHT.findall(metrics)))


class FirstCompletion:
    """The last step of a start: a chat completion for every model through every frontend.

    ``raise_if_exited`` is called between attempts.
    """

    def __init__(
        self, prober: Prober, clock: Callable[[], float], raise_if_exited: Callable[[], None]
    ) -> None:
        self._prober, self._clock, self._raise_if_exited = prober, clock, raise_if_exited

    async def complete_all(
        self, urls: Iterable[str], deadline: float, *, disaggregated: bool
    ) -> tuple[str, ...]:
        """The models that the last of the ``urls`` serves. StartError after ``deadline``."""
        models: tuple[str, ...] = ()
        for url in urls:
            models = await self._wait_for_models(url, deadline)
            for model in models:
                await self._complete(url, model, deadline, disaggregated)
        return models

    async def _wait_for_models(self, url: str, deadline: float) -> tuple[str, ...]:
        """The models that /v1/models lists, as soon as there is one."""
        while True:
            models = await self._prober.models(url)
            if models:
                return models
            await self._wait_or_fail(f"{url} lists no model", deadline)

    async def _complete(self, url: str, model: str, deadline: float, disaggregated: bool) -> None:
        while True:
            response = await self._prober.completion(url, model)
            if isinstance(response, CompletionFailure):
                reason = response.reason
            elif disaggregated and response.prefill_worker is None:
                reason = "the response did not use the prefill pool"
            else:
                return
            await self._wait_or_fail(f"no completion from {model} at {url}: {reason}", deadline)

    async def _wait_or_fail(self, reason: str, deadline: float) -> None:
        if self._clock() > deadline:
            raise StartError(reason)
        self._raise_if_exited()
        await asyncio.sleep(POLL_S)
