"""The last step of a start: a chat completion for every model through every frontend."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from penstock.errors import StartError
from penstock.local.probe import CompletionFailure, Prober

POLL_S = 0.2


class FirstCompletion:
    """``raise_if_exited`` is called between attempts."""

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
