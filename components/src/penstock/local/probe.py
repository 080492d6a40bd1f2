"""Questions to running processes over HTTP: is it ready, who is it, what has it in flight."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import httpx

_WORKER_ID = re.compile(
    r'^dynamo_component_uptime_seconds\{[^}]*worker_id="([0-9a-f]+)"', re.MULTILINE
)
_INFLIGHT = re.compile(
    r"^dynamo_component_inflight_requests(?:\{[^}]*\})? ([0-9.e+]+)$", re.MULTILINE
)


@dataclass(frozen=True, kw_only=True)
class WorkerStatus:
    """``inflight`` counts requests that the worker has and has not finished."""

    worker_id: int
    inflight: int


@dataclass(frozen=True, kw_only=True)
class Completion:
    """A real answer. ``prefill_worker`` is None when no prefill pool took part in it."""

    prefill_worker: int | None


class Prober:
    """One HTTP client for a run; every question is answered within ``timeout_s`` or by None."""

    def __init__(self, timeout_s: float = 2.0) -> None:
        # trust_env=False: a proxy in the user's environment is not for loopback.
        self._client = httpx.AsyncClient(timeout=timeout_s, trust_env=False)

    async def close(self) -> None:
        await self._client.aclose()

    async def _get(self, url: str) -> httpx.Response | None:
        try:
            return await self._client.get(url)
        except httpx.HTTPError:
            return None

    async def worker(self, system_port: int) -> WorkerStatus | None:
        answer = await self._get(f"http://127.0.0.1:{system_port}/metrics")
        who = _WORKER_ID.search(answer.text) if answer is not None else None
        if answer is None or who is None:
            return None
        return WorkerStatus(worker_id=int(who.group(1), 16), inflight=_inflight(answer.text))

    async def frontend_ready(self, base: str) -> bool:
        answer = await self._get(f"{base}/health")
        return answer is not None and answer.status_code == 200

    async def models(self, base: str) -> tuple[str, ...]:
        answer = await self._get(f"{base}/v1/models")
        if answer is None or answer.status_code != 200:
            return ()
        return tuple(str(model["id"]) for model in answer.json().get("data", []))

    async def completion(self, base: str, model: str) -> Completion | str:
        """One short chat completion; a string says why there was none."""
        body: dict[str, Any] = {
            "model": model,
            "messages": [{"role": "user", "content": "Is the water running?"}],
            "max_tokens": 4,
            "nvext": {"extra_fields": ["worker_id"]},
        }
        try:
            answer = await self._client.post(f"{base}/v1/chat/completions", json=body, timeout=60)
        except httpx.HTTPError as error:
            return f"no answer: {error!r}"
        if answer.status_code != 200:
            return f"HTTP {answer.status_code}: {answer.text[:300]}"
        content = answer.json()
        workers = (content.get("nvext") or {}).get("worker_id") or {}
        return Completion(prefill_worker=workers.get("prefill_worker_id"))


def _inflight(metrics: str) -> int:
    return int(sum(float(value) for value in _INFLIGHT.findall(metrics)))
