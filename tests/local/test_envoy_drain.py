"""A process that holds SIGTERM, as each Envoy does."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from penstock.local.envoy_drain import drain, is_terminated
from penstock.local.process import Child
from tests.support.waiting import wait_for


@pytest.mark.program
@pytest.mark.parametrize("holds_sigterm", [True, False])
def test_only_a_process_that_holds_sigterm_survives_it_and_shows_it(
    tmp_path: Path, holds_sigterm: bool
) -> None:
    argv = ["sleep", "600"]
    child = Child(argv, os.environ, tmp_path / "log", tmp_path, holds_sigterm=holds_sigterm)
    try:
        assert not is_terminated(child.pid)
        os.kill(child.pid, signal.SIGTERM)
        if holds_sigterm:
            assert is_terminated(child.pid)
            assert child.exit_code() is None
            child.end()
        wait_for(lambda: child.exit_code() is not None, "it ends")
        assert child.exit_code() == -(signal.SIGINT if holds_sigterm else signal.SIGTERM)
        assert not is_terminated(child.pid)
    finally:
        child.kill()


@pytest.mark.program
def test_the_thread_that_starts_such_a_process_still_gets_sigterm(tmp_path: Path) -> None:
    Child(["true"], os.environ, tmp_path / "log", tmp_path, holds_sigterm=True).kill()
    assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_an_envoy_without_an_admin_interface_is_not_waited_for(tmp_path: Path) -> None:
    assert drain(tmp_path / "none", lambda: False, limit_s=60) == 0
