"""`penstock check DIR`: which files of a folder are checked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.checks.find_files import found_files, why_skipped
from tests.checks.support import trtllm_agg, trtllm_agg_dgd
from tests.support.command_line import penstock

GRAPH, MANIFEST = trtllm_agg(), trtllm_agg_dgd()
FILES = {
    "b.yaml": GRAPH,
    "a.yml": MANIFEST,
    "deep/er/c.yaml": GRAPH,
    "service.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: x}\n",
    "values.yaml": "image: {tag: x}\nreplicaCount: 1\n",
    "workload.yaml": "isl: 1000\nosl: 100\n",
    "notes.txt": GRAPH,
    ".hidden.yaml": GRAPH,
    ".git/d.yaml": GRAPH,
    "chart/Chart.yaml": "name: x\n",
    "chart/values.yaml": GRAPH,
    "chart/templates/dgd.yaml": "kind: DynamoGraphDeployment\n{{- if .Values.x }}\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_graphs_and_manifests_are_found_and_the_rest_is_counted(folder: Path) -> None:
    selection = found_files([folder])
    names = [str(path.relative_to(folder)) for path in selection.files]
    assert names == ["a.yml", "b.yaml", "deep/er/c.yaml"]
    assert len(selection.skipped) == 6


def test_a_file_is_checked_once(folder: Path) -> None:
    selection = found_files([folder / "b.yaml", folder, folder / "deep", folder / "b.yaml"])
    assert len(selection.files) == 3


def test_a_named_file_is_always_checked(folder: Path) -> None:
    selection = found_files([folder / "service.yaml", folder / "chart" / "values.yaml"])
    assert (len(selection.files), selection.skipped) == (2, ())


def test_a_link_to_a_folder_is_not_followed(folder: Path) -> None:
    (folder / "deep" / "loop").symlink_to(folder)
    assert len(found_files([folder]).files) == 3


@pytest.mark.parametrize(
    ("text", "checked"),
    [
        ("model:\n  id: x\nengine: {kind: vllm}\n", True),
        ("model: {id: x}\nengin: {kind: vllm}\nworker: {}\n", True),
        ("model:\n  a: b: c\nengine:\n", True),
        ("apiVersion: v1\nkind: List\nitems:\n- kind: DynamoGraphDeployment\n", True),
        ("model: resnet\nlayers: 3\n", False),
        ("", False),
        ("- a\n", False),
        ("# kind: DynamoGraphDeployment\n", False),
        ("  model: {id: x}\n  engine: {kind: vllm}\n", True),
        ("---\n# a comment\n\n  model: {id: x}\n  engine: {kind: vllm}\n", True),
        ("modle: {id: x}\nenigne: {kind: vllm}\n", True),
        ("Model: {id: x}\nEngine: {kind: vllm}\n", True),
        ('"model": {id: x}\n"engine": {kind: vllm}\n', True),
        ("{model: {id: x}, engine: {kind: vllm}}\n", True),
        ("spec:\n  model: {id: x}\n  engine: {kind: vllm}\n", False),
        ("services:\n  node: {image: x}\nvolumes: {}\n", False),
        ("mode: fast\nplanes: 2\n", False),
        ("mode: fast\nworker: 2\n", False),
        ("modle: {id: x}\nworker: {}\nhardware: {}\n", True),
    ],
)
def test_a_graph_or_manifest_is_recognized(text: str, checked: bool, tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text)
    assert (why_skipped(path) == "") is checked


def test_a_file_that_is_not_text_is_reported(folder: Path) -> None:
    (folder / "z.yaml").write_bytes(b"a: \xfc\n")
    done = penstock("check", str(folder))
    assert f"{folder / 'z.yaml'}:1 PS001 error not UTF-8" in done.stdout


def test_the_command_counts_the_skipped_files(folder: Path) -> None:
    done = penstock("check", str(folder))
    assert done.returncode == 0
    assert "3 files: 0 errors" in done.stdout
    assert "; skipped 6 other YAML files" in done.stdout
    assert f"skipped {folder / 'service.yaml'} (kind: Service), " in done.stdout
    assert ", 3 more (--full lists all)" in done.stdout
    found = json.loads(penstock("check", "--json", str(folder)).stdout)
    assert found["skipped"] == len(found["skipped_files"]) == 6


def test_full_names_each_skipped_file_and_the_reason(folder: Path) -> None:
    (folder / "truncated.yaml").write_text("# a graph\n")
    done = penstock("check", "--full", str(folder))
    assert f"skipped {folder / 'truncated.yaml'}: empty\n" in done.stdout
    assert f"skipped {folder / 'workload.yaml'}: no `model` and `engine` as in a graph\n" in (
        done.stdout
    )
    assert f"skipped {folder / 'chart' / 'values.yaml'}: part of a Helm chart\n" in done.stdout


def test_a_graph_with_mistyped_keys_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("modle: {id: x}\nEngine: {kind: vllm}\n")
    done = penstock("check", str(tmp_path))
    assert done.returncode == 14
    assert "unknown key `modle`. Did you mean `model`?" in done.stdout
    assert "unknown key `Engine`. Did you mean `engine`?" in done.stdout


def test_the_graphs_of_the_repository_are_found() -> None:
    root = Path(__file__).parents[2]
    count = len(list((root / "dynamo_graphs").glob("*.yaml")))
    assert len(found_files([root / "dynamo_graphs"]).files) == count
    assert found_files([root / "helm"]).files == (root / "helm",)
