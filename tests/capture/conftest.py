"""The command, for each test in a folder of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.capture.logs import Capture


@pytest.fixture
def capture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Capture:
    return Capture(folder=tmp_path, capsys=capsys)
