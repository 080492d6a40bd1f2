"""The frontends of a release, on this machine and on a cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx

from penstock.cluster.api import Api
from penstock.cluster.api_errors import ForbiddenError, UnavailableError
from penstock.cluster.frontends import frontend_port
from penstock.cluster.pods import ReadyFrontends, forwarded_url
from penstock.cluster.release import require_installed
from penstock.errors import ClusterError, RolloutError
from penstock.helm import ReleaseTarget
from penstock.live.scrape import has_metrics, metrics_of
from penstock.local.control import status
from penstock.local.ports import LOOPBACK
from penstock.local.state import StateDir
from penstock.manifests.deployment import Role
from penstock.metrics import Metrics

TIMEOUT_S = 5.0
CHAT_TIMEOUT_S = 120.0
METRICS = "metrics"


def _read(each: Mapping[Hashable, Callable[[], str]]) -> dict[Hashable, Metrics]:
    """The metrics by key, of those that respond. ForbiddenError if the user may not read them."""
    found = {}
    for key, read in each.items():
        try:
            found[key] = metrics_of(read())
        except ForbiddenError:
            raise
        except (OSError, httpx.HTTPError, ClusterError, ValueError):
            continue
    return found


class LocalFrontends:
    """Of a graph that `penstock up` runs. NotUpError or InputError if it does not run."""

    def __init__(self, graph: Path) -> None:
        status(graph, ())
        self._folder = StateDir(graph)
        # verify=False: loading the certificates takes 50 ms, and the connection is on loopback.
        self._client = httpx.Client(timeout=TIMEOUT_S, trust_env=False, verify=False)  # noqa: S501

    def scrape(self) -> Mapping[Hashable, Metrics]:
        state = self._folder.read() if self._folder.is_locked() else None
        frontends = [
            r
            for r in (state.replicas if state else ())
            if r.role is Role.FRONTEND and has_metrics(r)
        ]
        return _read({r.key: partial(self._get, r.system_port or r.port) for r in frontends})

    def _get(self, port: int | None) -> str:
        return self._client.get(f"http://{LOOPBACK}:{port}/{METRICS}").raise_for_status().text

    @contextlib.contextmanager
    def endpoint(self) -> Iterator[str]:
        """OpenAI base URL."""
        state = self._folder.read()
        yield state.endpoint if state else ""


class ReleaseFrontends:
    """Of an installed release. ClusterError if it is not installed."""

    def __init__(self, target: ReleaseTarget) -> None:
        self._api, self._target = Api.connect(target), target
        self._release = require_installed(target, self._api)
        self._port = frontend_port(self._release)
        self._ready = ReadyFrontends(self._api, target.name)

    def scrape(self) -> Mapping[Hashable, Metrics]:
        try:
            pods = self._ready.ready()
        except UnavailableError:
            return {}
        get, port = self._api.get_from_pod, self._port
        return _read({pod.name: partial(get, pod.name, port, METRICS) for pod in pods})

    @contextlib.contextmanager
    def endpoint(self) -> Iterator[str]:
        """OpenAI base URL, forwarded to a ready frontend. ClusterError without one, or without the
        right to forward."""
        with forwarded_url(self._api, self._release, self._target) as url:
            yield f"{url}/v1"


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """How a release renders one chat."""

    model: str
    tokens: int


CHAT = (
    {"role": "system", "content": "You answer in one short sentence."},
    {"role": "user", "content": "Which river flows through Paris?"},
    {"role": "assistant", "content": "The Seine."},
    {"role": "user", "content": "And through Rome?"},
)


def prompt_of(frontends: LocalFrontends | ReleaseFrontends, release: str) -> Prompt:
    """Send a chat to the release, which also proves that it serves. RolloutError if it fails."""
    with frontends.endpoint() as url, httpx.Client(timeout=CHAT_TIMEOUT_S, trust_env=False) as http:
        try:
            model = http.get(f"{url}/models").raise_for_status().json()["data"][0]["id"]
            body = {"model": model, "messages": CHAT, "max_tokens": 1}
            response = http.post(f"{url}/chat/completions", json=body).raise_for_status()
            return Prompt(model=model, tokens=int(response.json()["usage"]["prompt_tokens"]))
        except (httpx.HTTPError, ValueError, LookupError, TypeError) as error:
            raise RolloutError(
                f"{release} does not serve a chat: {error}. No weight was changed",
                fix="Run `penstock verify` for it, correct it, and start the shift again.",
            ) from None


def require_same_prompts(old: Prompt, new: Prompt, *, permits_other: bool) -> None:
    """RolloutError if the new release does not serve the same model name, or if it renders the chat
    to another number of tokens, as with another chat template or tokenizer."""
    if old.model != new.model:
        raise RolloutError(
            f"the new release serves {new.model}, and the old one {old.model}: clients would get "
            "404. No weight was changed",
            fix=f"Set model.served_name to {old.model} in the new graph.",
        )
    if old.tokens != new.tokens and not permits_other:
        raise RolloutError(
            f"the same chat has {new.tokens} prompt tokens with the new release and {old.tokens} "
            "with the old one: the chat template or the tokenizer differs. No weight was changed",
            fix="Correct the template or the tokenizer of the new one, or set --other-prompts.",
        )
