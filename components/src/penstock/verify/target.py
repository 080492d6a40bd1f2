"""The deployment under test: its endpoint, its metrics, its logs, and what is expected of it."""

from __future__ import annotations

import json
import os
import random
import re
import secrets
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx

from penstock.manifests.deployment import Engine, Role
from penstock.metrics import Metrics, Sample, parse
from penstock.verify.expected import Expectations

GET_S = 15.0  # for what needs no computing
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
EXTRA = {"extra_fields": ["worker_id", "timing", "completion_token_ids"]}


class NoResponseError(Exception):
    """The endpoint did not answer; its text says why. The runner makes a failed probe of it."""


class UnreachableError(NoResponseError):
    """Nothing answers there: no other probe needs to wait for the same."""


@dataclass(frozen=True, kw_only=True)
class ApiResponse:
    """One completed request. ``body`` is the response's JSON, {} where it was none."""

    status: int
    body: Mapping[str, Any]
    text: str

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
        found = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
        return int(found) if found is not None else None


@dataclass(frozen=True, kw_only=True)
class Instance:
    """A worker that the frontend sees."""

    namespace: str
    role: Role  # PREFILL, or DECODE for any other: the frontend does not tell decode from both
    worker_id: int


@dataclass(kw_only=True)
class ProbeTarget:
    """``url`` without /v1. Every question raises NoResponseError where nothing comes back."""

    url: str
    expected: Expectations | None = None
    has_substitute: bool = False  # a mocker runs in an engine's place
    namespace: str = ""  # what the Dynamo namespaces of its workers begin with, where it is known
    metrics_urls: tuple[str, ...] = ()
    logs: tuple[Path, ...] = ()
    model_folder: Path | None = None
    timeout_s: float = 120.0
    has_responded: bool = False  # whether anything ever came back
    _random: random.Random = field(default_factory=lambda: random.Random(secrets.randbits(64)))

    @cached_property
    def _client(self) -> httpx.Client:
        key = os.environ.get("OPENAI_API_KEY")
        local = httpx.URL(self.url).host in LOOPBACK
        return httpx.Client(
            timeout=httpx.Timeout(self.timeout_s, connect=GET_S),
            trust_env=not local,  # a proxy in the user's environment is not for loopback
            headers={"Authorization": f"Bearer {key}"} if key else {},
        )

    def close(self) -> None:
        self._client.close()

    @property
    def is_mocked(self) -> bool:
        """Whether answers are a mocker's: random, and no engine's refusals."""
        engines = self.expected.engines if self.expected is not None else frozenset()
        return self.has_substitute or Engine.MOCKER in engines

    # --- the OpenAI endpoint --------------------------------------------------------------

    def post(self, path: str, body: Mapping[str, Any]) -> ApiResponse:
        return self._answer(lambda: self._client.post(f"{self.url}{path}", json=dict(body)))

    def get(self, path: str) -> ApiResponse:
        return self._answer(lambda: self._client.get(f"{self.url}{path}", timeout=GET_S))

    def _answer(self, ask: Callable[[], httpx.Response]) -> ApiResponse:
        try:
            response = ask()
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise UnreachableError(f"no answer from {self.url}: {error!r}") from None
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
        answer = self.get(path)
        listed = answer.body.get(key)
        if not isinstance(listed, list):
            raise NoResponseError(
                f"{self.url}{path} is no Dynamo frontend's: HTTP {answer.status}: {answer.text}"
            )
        return listed

    @property
    def model(self) -> str:
        """The model that probes ask; NoResponseError when the endpoint lists none."""
        if not self.models:
            raise NoResponseError(f"{self.url}/v1/models lists no model")
        return self.models[0]

    def complete(self, prompt: list[int] | str, max_tokens: int, **more: Any) -> ApiResponse:
        """A greedy completion of exactly ``max_tokens``, with token ids, workers and timing."""
        answer = self.post("/v1/completions", self._body(prompt, max_tokens, more))
        if answer.status != 200:
            raise NoResponseError(f"HTTP {answer.status}: {answer.text}")
        return answer

    def _body(
        self, prompt: list[int] | str, max_tokens: int, more: Mapping[str, Any]
    ) -> dict[str, Any]:
        return {
            "model": self.model,
            "prompt": prompt,
            "max_tokens": max_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "nvext": EXTRA,
            **more,
        }

    def stream(
        self, prompt: list[int], max_tokens: int
    ) -> Generator[Mapping[str, Any] | None, None, None]:
        """The events of a streamed completion, None for `[DONE]`; closing it cancels it."""
        body = {**self._body(prompt, max_tokens, {}), "stream": True}
        body["stream_options"] = {"include_usage": True}
        try:
            with self._client.stream("POST", f"{self.url}/v1/completions", json=body) as response:
                if response.status_code != 200:
                    raise NoResponseError(
                        f"HTTP {response.status_code}: {response.read().decode()[:300]}"
                    )
                for line in response.iter_lines():
                    if line.startswith("data:"):
                        data = line.removeprefix("data:").strip()
                        yield None if data == "[DONE]" else json.loads(data)
        except httpx.HTTPError as error:
            raise NoResponseError(f"the stream broke: {error!r}") from None

    def prompt(self, tokens: int) -> list[int]:
        """A prompt that nobody has sent before; its ids exist in every vocabulary served here."""
        return [self._random.randrange(100, 3000) for _ in range(tokens)]

    # --- what the frontend knows ----------------------------------------------------------

    def instances(self) -> tuple[Instance, ...]:
        """The workers that the frontend sees, of ``namespace``: others may share its discovery."""
        found = {
            Instance(
                namespace=str(item["namespace"]),
                role=Role.PREFILL if item["component"] == "prefill" else Role.DECODE,
                worker_id=int(item["instance_id"]),
            )
            for item in self._listed("/health", "instances")
            if item.get("endpoint") == "generate"
            and str(item["namespace"]).startswith(self.namespace)
        }
        return tuple(sorted(found, key=lambda i: (i.namespace, i.role, i.worker_id)))

    # --- metrics and logs -----------------------------------------------------------------

    def metrics(self) -> Metrics:
        """Those of ``metrics_urls``, and the endpoint's own where no frontend is among them (else
        it would count twice); what does not answer is left out."""
        samples = [sample for url in self.metrics_urls for sample in self._samples(url)]
        if not any(sample.name.startswith("dynamo_frontend_") for sample in samples):
            samples += self._samples(f"{self.url}/metrics")
        return Metrics(tuple(samples))

    def _samples(self, url: str) -> list[Sample]:
        try:
            response = self._client.get(url, timeout=GET_S)
            return parse(response.text) if response.status_code == 200 else []
        except (httpx.HTTPError, ValueError):
            return []

    def wait_for(self, seen: Callable[[], bool], seconds: float = 5.0) -> bool:
        """Whether ``seen`` comes true in that time; metrics lag behind what they count."""
        deadline = time.monotonic() + seconds
        while not seen():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.1)
        return True

    def log_matches(self, pattern: str) -> list[re.Match[str]]:
        """Every match in the logs, in order; a log that cannot be read is no log."""
        found: list[re.Match[str]] = []
        for log in self.logs:
            try:
                text = log.read_text(errors="replace")
            except OSError:
                continue
            found += re.finditer(pattern, text)
        return found
