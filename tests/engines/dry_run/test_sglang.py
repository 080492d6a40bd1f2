"""SGLang's own code refuses what it refuses on a GPU, and accepts the rest."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.engines.dry_run.process import EngineProcesses
from penstock.engines.dry_run.protocol import Accepted, Outcome, Refused
from penstock.environments.paths import installed_python
from penstock.manifests.deployment import Engine

from .configurations import configuration

pytestmark = [pytest.mark.needs("sglang-check"), pytest.mark.xdist_group("sglang-dry-run")]


@pytest.fixture(scope="module")
def engines() -> Iterator[EngineProcesses]:
    """One process for all tests: its import takes 5 s."""
    python = installed_python("sglang-check")
    assert python is not None
    with EngineProcesses({Engine.SGLANG: python}) as processes:
        yield processes


def asked(engines: EngineProcesses, flags: str) -> Outcome:
    return engines.ask(Engine.SGLANG, configuration(flags, engines.folder, engine=Engine.SGLANG))


REFUSED = {
    "--page-size 7": "chunked_prefill_size must be divisible by page_size",
    "--chunked-prefill-size 100 --page-size 64": "must be divisible by page_size",
    # an assertion without words
    "--enable-dp-attention --tp-size 4 --dp-size 3": "assert cfg.tp_size % cfg.dp_size == 0",
}


@pytest.mark.parametrize("flags", REFUSED)
def test_it_refuses_in_its_own_words(engines: EngineProcesses, flags: str) -> None:
    outcome = asked(engines, flags)
    assert isinstance(outcome, Refused), outcome
    assert REFUSED[flags] in outcome.message


def test_it_resolves_a_pool(engines: EngineProcesses) -> None:
    outcome = asked(engines, "--disaggregation-mode prefill --tp-size 2")
    assert isinstance(outcome, Accepted), outcome
    assert outcome.resolved.attention_backend == "fa3"
    assert outcome.resolved.block_size == 1
    assert outcome.resolved.connector == "mooncake"
