"""`penstock drill --cluster`: the checks before the first fault, and the way to the endpoint."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import httpx

from penstock.cluster.api import Api
from penstock.cluster.frontends import forwarded
from penstock.cluster.installed import require_installed
from penstock.cluster.observe import read_progress
from penstock.cluster.own_objects import OwnObjects
from penstock.cluster.preflight import Preflight
from penstock.cluster.release import Release
from penstock.cluster.rights import Verb, needs_to_drill
from penstock.drill.cluster_faults import KINDS, ClusterChoice
from penstock.drill.cluster_target import ClusterRelease
from penstock.drill.run import DrillOptions, DrillResult, drill_endpoint
from penstock.drill.targets import first_model
from penstock.errors import DrillError, Problem
from penstock.helm import ReleaseTarget
from penstock.text.numbers import limit_text

TIMEOUT_S = 30.0


@dataclass(frozen=True, kw_only=True)
class ClusterDrill:
    """A drill of one release."""

    target: ReleaseTarget
    choices: Sequence[ClusterChoice]
    options: DrillOptions
    # OpenAI base URL with /v1; None: a port that is forwarded to the frontends.
    url: str | None = None
    # Name of the model to request; None: the first that the endpoint lists.
    model: str | None = None
    # Of the requests to ``url``.
    headers: Mapping[str, str] = field(default_factory=dict)
    # Whether a component may lose its last ready pod.
    may_remove_last: bool = False

    def run(self, confirm: Callable[[str], None], say: Callable[[str], None]) -> DrillResult:
        """Raises ClusterError, DrillError, UsageError; ``confirm`` may raise too."""
        api = Api.connect(self.target)
        release = self._ready_release(api, say)
        faults = ClusterRelease(
            api,
            release,
            self.target.name,
            self.choices,
            self.options.seed,
            say,
            may_remove_last=self.may_remove_last,
        )
        confirm(self._plan(api, faults))
        try:
            with self._endpoint(api, release) as (url, clients):
                headers = self.headers if self.url else None
                with httpx.Client(
                    base_url=url, headers=headers, timeout=TIMEOUT_S, trust_env=self.url is not None
                ) as client:
                    model = self.model or first_model(client, url)
                faults.serve_at(url, model, clients)
                return drill_endpoint(faults, self.options, headers, say)
        finally:
            faults.close()

    def _ready_release(self, api: Api, say: Callable[[str], None]) -> Release:
        kinds = sorted({choice.kind for choice in self.choices})
        Preflight(
            api,
            self.target,
            Verb.DRILL,
            say,
            lambda before, after: needs_to_drill(before, kinds, forwards=self.url is None),
        ).require()
        release = require_installed(self.target, api)
        progress = read_progress(OwnObjects(api, self.target), release)
        if not progress.is_done:
            raise DrillError(
                Problem(
                    place=f"release {self.target}",
                    message=f"is not ready: {progress}; nothing was changed",
                    fix="Wait until `penstock status --cluster` shows it as ready.",
                )
            )
        return release

    def _plan(self, api: Api, faults: ClusterRelease) -> str:
        """What the drill will do, for the user's confirmation."""
        context = f", context {self.target.context}" if self.target.context else ""
        targets: dict[str, list[str]] = {}
        for kind, target in faults.possible:
            targets.setdefault(kind, []).append(target)
        options = self.options
        minutes = options.minutes and limit_text(options.minutes)
        length = f"for {minutes} min" if minutes else f"{options.count} faults"
        return "\n".join(
            [
                f"The drill will change the release {self.target} on "
                f"{api.configuration.host}{context}:",
                *(f"  {KINDS[kind]}: {', '.join(found)}" for kind, found in targets.items()),
                f"  {length}, one at a time, under {options.streams} concurrent requests to "
                f"{self.url or 'a port forwarded to the frontends'}",
            ]
        )

    @contextlib.contextmanager
    def _endpoint(
        self, api: Api, release: Release
    ) -> Iterator[tuple[str, Callable[[str], tuple[int, ...]] | None]]:
        """The base URL, and the ports of a pod's clients if they are known."""
        if self.url:
            yield self.url, None
            return
        with forwarded(api, release, self.target) as forward:
            yield f"http://127.0.0.1:{forward.port}/v1", forward.clients_of
