"""The deployment under test: its endpoint, metrics and logs, and what is expected of it."""

from __future__ import annotations

import json
import os
import random
import re
import secrets
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx

from penstock.errors import ClusterError
from penstock.local.load import GENERATE, IN_FLIGHT
from penstock.manifests.deployment import WORKERS, Engine, Role
from penstock.metrics import Metrics, parse
from penstock.verify.expected import Expectations

GET_S = 15.0  # time limit of requests that need no computing
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
EXTRA = {"extra_fields": ["worker_id", "timing", "completion_token_ids"]}


WORKER_STATE = "dynamo_frontend_router_worker_state"


class NoResponseError(Exception):
    """The endpoint sent no usable response; the message is the reason. The probe fails."""


class NotReportedError(Exception):
    """The endpoint has no means to report what a probe asks for."""


class UnreachableError(NoResponseError):
    """Nothing responds at the endpoint: the other probes are not tried."""


@dataclass(frozen=True, kw_only=True)
class ApiResponse:
    """One HTTP response."""

    status: int
    body: Mapping[str, Any]
    """The JSON object; {} when the response is not one."""
    text: str
    """The first 500 characters."""

    @property
    def choice(self) -> Mapping[str, Any]:
        choices = self.body.get("choices") or [{}]
        return dict(choices[0])

    @property
    def nvext(self) -> Mapping[str, Any]:
        return self.body.get("nvext") or {}

    @property
    def token_ids(self) -> list[int]:
        return list(self.nvext.get("completion_token_ids") or [])

    @property
    def timing(self) -> Mapping[str, Any]:
        return self.nvext.get("timing") or {}

    @property
    def workers(self) -> Mapping[str, Any]:
        return self.nvext.get("worker_id") or {}

    @property
    def cached_tokens(self) -> int | None:
        usage = self.body.get("usage") or {}
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
        return int(cached) if cached is not None else None


@dataclass(frozen=True, kw_only=True)
class Instance:
    """A worker that the frontend sees."""

    namespace: str
    role: Role
    """PREFILL, or DECODE for any other: the frontend does not distinguish decode and aggregated."""
    worker_id: int


def _instance(namespace: str, component: str, worker_id: int | str) -> Instance:
    role = Role.PREFILL if component == "prefill" else Role.DECODE
    return Instance(namespace=str(namespace), role=role, worker_id=int(worker_id))


@dataclass(frozen=True, kw_only=True)
class Process:
    """A frontend or worker that serves metrics or has a log."""

    name: str
    """`decode.0`, the name of a pod, or a URL or file of the command line."""
    pool: str = ""
    """Component of the graph; "" for a URL or file of the command line."""
    role: Role = Role.OTHER
    metrics: Callable[[httpx.Client], str] | None = None
    """Raises httpx.HTTPError, OSError or ClusterError."""
    log: Callable[[], str] | None = None
    """Raises OSError or ClusterError."""


def metrics_at(url: str) -> Callable[[httpx.Client], str]:
    """`Process.metrics` of a URL."""
    return lambda client: client.get(url, timeout=GET_S).raise_for_status().text


def log_in(path: Path) -> Callable[[], str]:
    """`Process.log` of a file."""
    return lambda: path.read_text(errors="replace")


@dataclass(kw_only=True)
class ProbeTarget:
    """A deployment to probe. Requests raise NoResponseError when there is no usable response."""

    url: str
    """Without `/v1`."""
    expected: Expectations | None = None
    has_substitute: bool = False
    """A mocker runs instead of an engine."""
    namespace: str = ""
    """Prefix of the workers' Dynamo namespaces; empty when it is not known."""
    processes: tuple[Process, ...] = ()
    model_folder: Path | None = None
    timeout_s: float = 120.0
    api_key: str | None = field(default=None, repr=False)
    """None: the value of the environment variable OPENAI_API_KEY."""
    has_responded: bool = False
    """Any response came back so far."""
    _random: random.Random = field(default_factory=lambda: random.Random(secrets.randbits(64)))

    @cached_property
    def _client(self) -> httpx.Client:
        key = os.environ.get("OPENAI_API_KEY") if self.api_key is None else self.api_key
        local = httpx.URL(self.url).host in LOOPBACK
        return httpx.Client(
            timeout=httpx.Timeout(self.timeout_s, connect=GET_S),
            trust_env=not local,  # a proxy must not see loopback
            verify=httpx.create_ssl_context(),  # SSL_CERT_FILE applies to loopback too
            headers={"Authorization": f"Bearer {key}"} if key else {},
        )

    def close(self) -> None:
        self._client.close()

    @property
    def is_mocked(self) -> bool:
        """Whether a mocker generates the output, which is then random."""
        engines = self.expected.engines if self.expected is not None else frozenset()
        return self.has_substitute or Engine.MOCKER in engines

    @property
    def caches_single_tokens(self) -> bool:
        """Whether the engine is llama.cpp, which caches a prompt without blocks.

        Of a repeated prompt it then computes only the last token, alone. The sums have another
        order than with the whole prompt, so that the output can differ from the first one.
        """
        engines = self.expected.engines if self.expected is not None else frozenset()
        return Engine.LLAMACPP in engines and not self.is_mocked

    # --- the OpenAI endpoint --------------------------------------------------------------

    def post(self, path: str, body: Mapping[str, Any]) -> ApiResponse:
        return self._send(lambda: self._client.post(f"{self.url}{path}", json=dict(body)))

    def get(self, path: str) -> ApiResponse:
        return self._send(lambda: self._client.get(f"{self.url}{path}", timeout=GET_S))

    def text(self, path: str, timeout_s: float = GET_S) -> str:
        """The complete response. Raises httpx.HTTPError."""
        response = self._client.get(f"{self.url}{path}", timeout=timeout_s)
        return response.raise_for_status().text

    def _send(self, send: Callable[[], httpx.Response]) -> ApiResponse:
        try:
            response = send()
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise UnreachableError(f"no response from {self.url}: {error!r}") from None
        self.has_responded = True
        try:
            body = response.json()
        except ValueError:
            body = {}
        mapping = body if isinstance(body, dict) else {}
        return ApiResponse(status=response.status_code, body=mapping, text=response.text[:500])

    @cached_property
    def models(self) -> tuple[str, ...]:
        return tuple(str(model["id"]) for model in self._listed("/v1/models", "data"))

    def _listed(self, path: str, key: str) -> list[Any]:
        """The list under ``key`` of the JSON at ``path``."""
        response = self.get(path)
        items = response.body.get(key)
        if not isinstance(items, list):
            raise NoResponseError(
                f"{self.url}{path} is not a Dynamo frontend: HTTP {response.status}: "
                f"{response.text}"
            )
        return items

    @property
    def model(self) -> str:
        """The model that the probes use; NoResponseError when the endpoint lists none."""
        if not self.models:
            raise NoResponseError(f"{self.url}/v1/models lists no model")
        return self.models[0]

    def complete(
        self, prompt: list[int] | str, max_tokens: int, timeout_s: float | None = None, **more: Any
    ) -> ApiResponse:
        """A greedy completion of exactly ``max_tokens``, with token ids, workers and timing.

        ``timeout_s``: seconds without a response (default: those of the target). ``more``: members
        of the body; `nvext` is added to the target's own.
        """
        body = self._body(prompt, max_tokens, more)
        limit = httpx.Timeout(timeout_s or self.timeout_s, connect=GET_S)
        url = f"{self.url}/v1/completions"
        response = self._send(lambda: self._client.post(url, json=body, timeout=limit))
        if response.status != 200:
            raise NoResponseError(f"HTTP {response.status}: {response.text}")
        return response

    def _body(
        self, prompt: list[int] | str, max_tokens: int, more: Mapping[str, Any]
    ) -> dict[str, Any]:
        return {
            "model": self.model,
            "prompt": prompt,
            "max_tokens": max_tokens,
            "temperature": 0,
            "ignore_eos": True,
            **more,
            "nvext": {**EXTRA, **more.get("nvext", {})},
        }

    def stream(
        self, prompt: list[int], max_tokens: int, read_s: float | None = None
    ) -> Generator[Mapping[str, Any] | None, None, None]:
        """The events of a streamed completion, None for `[DONE]`; closing it cancels it.

        ``read_s``: seconds without an event, after which it is canceled with NoResponseError; None:
        as for other requests.
        """
        body = {**self._body(prompt, max_tokens, {}), "stream": True}
        body["stream_options"] = {"include_usage": True}
        url = f"{self.url}/v1/completions"
        limit = httpx.Timeout(read_s or self.timeout_s, connect=GET_S)
        try:
            with self._client.stream("POST", url, json=body, timeout=limit) as response:
                if response.status_code != 200:
                    raise NoResponseError(
                        f"HTTP {response.status_code}: {response.read().decode()[:300]}"
                    )
                for line in response.iter_lines():
                    if line.startswith("data:"):
                        data = line.removeprefix("data:").strip()
                        yield None if data == "[DONE]" else json.loads(data)
        except httpx.HTTPError as error:
            raise NoResponseError(f"the stream was interrupted: {error!r}") from None

    def leave(self, prompt: list[int], after_s: float) -> None:
        """Sends a streamed completion, and closes the connection after ``after_s`` seconds without
        an event, or at the first one."""
        with suppress(NoResponseError), closing(self.stream(prompt, 1, after_s)) as events:
            next(events, None)

    def prompt(self, tokens: int) -> list[int]:
        """A new random prompt of token ids; they exist in every vocabulary served here."""
        return [self._random.randrange(100, 3000) for _ in range(tokens)]

    # --- the frontend's health ------------------------------------------------------------

    def instances(self) -> tuple[Instance, ...]:
        """The workers that the frontend sees in ``namespace``, or else in the namespaces of the
        pools' processes; other graphs may share discovery.

        NotReportedError if this frontend lists none.
        """
        health = self.get("/health").body
        # Dynamo 1.7: `{"status": "healthy", "stage": "ready"}`.
        is_listed = "instances" in health or "stage" not in health
        instances = self._instances_of_health() if is_listed else self._instances_of_metrics()
        mine = {i for i in instances if i.namespace.startswith(self.namespace)}
        if not self.namespace:
            own = {i.namespace for i in mine if i.worker_id in self.workers}
            mine = {i for i in mine if i.namespace in own or not own}
        return tuple(sorted(mine, key=lambda i: (i.namespace, i.role, i.worker_id)))

    def _instances_of_health(self) -> set[Instance]:
        return {
            _instance(item["namespace"], item["component"], item["instance_id"])
            for item in self._listed("/health", "instances")
            if item.get("endpoint") == "generate"
        }

    def _instances_of_metrics(self) -> set[Instance]:
        samples = list(self._scrape(metrics_at(f"{self.url}/metrics")).find(WORKER_STATE))
        if not samples:
            raise NotReportedError("/health of this Dynamo lists no workers, nor do its metrics")
        return {
            _instance(
                labels["target_namespace"], labels["target_component"], labels["router_worker_id"]
            )
            for sample in samples
            if (labels := sample.labels)["target_endpoint"] == "generate" and sample.value
        }

    # --- metrics and logs -----------------------------------------------------------------

    @cached_property
    def workers(self) -> Mapping[int, Process]:
        """The workers of the pools by the ID that they export."""
        pools = [p for p in self.processes if p.role in WORKERS and p.metrics is not None]
        scrapes = self.scrapes(pools)
        return {
            int(sample.labels["worker_id"], 16): process
            for process in pools
            for sample in scrapes[process.name].find(IN_FLIGHT, **GENERATE)
            if "worker_id" in sample.labels
        }

    def scrapes(self, processes: Iterable[Process]) -> dict[str, Metrics]:
        """The metrics by the name of the process; no samples of one that does not respond."""
        return {p.name: self._scrape(p.metrics) for p in processes if p.metrics is not None}

    def metrics(self) -> Metrics:
        """The metrics of all processes, plus the endpoint's unless a frontend is among them."""
        scrapes = self.scrapes(self.processes).values()
        samples = tuple(sample for metrics in scrapes for sample in metrics.samples)
        if not any(sample.name.startswith("dynamo_frontend_") for sample in samples):
            samples += self._scrape(metrics_at(f"{self.url}/metrics")).samples
        return Metrics(samples)

    def _scrape(self, read: Callable[[httpx.Client], str]) -> Metrics:
        try:
            return Metrics(tuple(parse(read(self._client))))
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ClusterError, ValueError):
            return Metrics(())

    def wait_for(self, condition: Callable[[], bool], seconds: float = 5.0) -> bool:
        """Whether ``condition`` becomes true in ``seconds``; metrics lag behind requests."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.1)
        return True

    def log_matches(
        self, pattern: str, processes: Iterable[Process] | None = None
    ) -> list[re.Match[str]]:
        """Every match in the logs of these processes (default: all), in order; logs that cannot be
        read are skipped."""
        matches: list[re.Match[str]] = []
        for process in self.processes if processes is None else processes:
            with suppress(OSError, ClusterError):
                matches += re.finditer(pattern, process.log() if process.log else "")
        return matches
