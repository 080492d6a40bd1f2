from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.support.emulated_cluster.released import Cluster, certificate, cluster
from tests.support.emulated_cluster.site import OnSite, Site, site_on

# Fixtures with an emulated cluster, whose rollouts take seconds.
EMULATED = frozenset({"fresh", "released", "site"})


def pytest_itemcollected(item: pytest.Item) -> None:
    """Leave the tests on an emulated cluster out of `make unit`."""
    if EMULATED.intersection(getattr(item, "fixturenames", ())):
        item.add_marker(pytest.mark.slow)


@pytest.fixture
def on_site(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> OnSite:
    """`site_on` in the folder and with the fixtures of the test."""

    def emulated(
        platform: str,
        options: Mapping[str, Any] | None = None,
        tls: tuple[Path, Path] | None = None,
    ) -> AbstractContextManager[Site]:
        return site_on(platform, tmp_path, capsys, monkeypatch, options or {}, tls)

    return emulated


@pytest.fixture
def fresh(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cluster]:
    """An emulated cluster with the operator and no release."""
    with cluster(tmp_path, capsys, monkeypatch) as emulated:
        yield emulated


@pytest.fixture
def secured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cluster]:
    """The installed quickstart on an API server that tells users apart."""
    with cluster(tmp_path, capsys, monkeypatch, certificate(tmp_path)) as emulated:
        emulated.install()
        yield emulated


@pytest.fixture
def installed(fresh: Cluster) -> Cluster:
    """The installed quickstart: one frontend, two prefill workers, one decode worker."""
    fresh.install()
    return fresh
