"""Tests find the files of the Dynamo repository in the checkout that a variable names."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import outside_files


def test_recipes_of_a_checkout_have_their_paths_as_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = tmp_path / "recipes" / "gpt-oss-120b" / "trtllm" / "agg" / "deploy.yaml"
    other = recipe.with_name("perf.yaml")  # the tests have no results for it
    recipe.parent.mkdir(parents=True)
    recipe.write_text("kind: DynamoGraphDeployment\n")
    other.write_text("kind: Job\n")
    monkeypatch.setenv(outside_files.CHECKOUT, str(tmp_path))
    folder = outside_files.recipes.__wrapped__()
    name = "recipes_gpt-oss-120b_trtllm_agg_deploy.yaml"
    assert [path.name for path in folder.iterdir()] == [name]
    assert (folder / name).read_text() == recipe.read_text()
    assert outside_files.crds() == tmp_path / "deploy/operator/config/crd/bases"


def test_without_variables_the_files_are_next_to_the_checkout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(outside_files.CHECKOUT, raising=False)
    monkeypatch.delenv("PENSTOCK_SHARED", raising=False)
    assert outside_files.shared() == outside_files.ROOT.parent / "shared"
    assert outside_files.recipes.__wrapped__() == outside_files.shared() / "recipes"
    monkeypatch.setenv("PENSTOCK_SHARED", "/elsewhere")
    assert outside_files.recordings() == Path("/elsewhere/real-cluster")
