"""CRDs that an interrupted upgrade of the operator left."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.cli.main import main
from penstock.cluster.api import Api
from penstock.errors import ClusterError, GraphError, InputError
from penstock.strict_yaml.loader import SafeLoader
from penstock.upgrade.crds import CRDS, GRAPHS, crd_problems, field_problems, read_fields
from penstock.upgrade.plan import plan_upgrade
from tests.support.kubernetes_schemas.dgd import CRD, ROOT
from tests.support.kubernetes_schemas.dgd import GRAPHS as GRAPH_FILES
from tests.support.needs import needed_by_its_tests

GRAPH = "model: {id: a/b}\nengine: {kind: trtllm}\nworker: {}\n"
NEXT = "1.7.0.dev20261026"


def definition(*versions: str, established: str = "True") -> dict[str, Any]:
    condition = {"type": "Established", "status": established, "message": "installing"}
    return {
        "spec": {"versions": [{"name": version, "served": True} for version in versions]},
        "status": {"conditions": [condition]},
    }


COMPLETE = {name: definition("v1alpha1", "v1beta1") for name in CRDS}


def messages(**changes: Any) -> list[str]:
    names = {name.partition(".")[0]: name for name in CRDS}
    definitions = COMPLETE | {names[short]: value for short, value in changes.items()}
    return [f"{p.place}: {p.message}" for p in crd_problems(definitions)]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        (
            {"dynamoworkermetadatas": None},
            [
                "CRD dynamoworkermetadatas.nvidia.com: is missing: 3 of 4 of Dynamo's CRDs are "
                "installed"
            ],
        ),
        ({name.partition(".")[0]: None for name in CRDS}, [": Dynamo's CRDs are not installed"]),
        (
            {"dynamographdeployments": definition("v1beta1", established="False")},
            [f"CRD {GRAPHS}: is not established: installing"],
        ),
        (
            {"dynamographdeployments": definition("v1alpha1")},
            [f"CRD {GRAPHS}: serves v1alpha1, and not v1beta1"],
        ),
    ],
)
def test_incomplete_crds_are_reported(changes: dict[str, Any], expected: list[str]) -> None:
    assert messages(**changes) == expected


def test_no_kubeconfig_has_a_fix_for_this_verb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    file = tmp_path / "llm.yaml"
    file.write_text(GRAPH)
    assert main(["upgrade", str(file), "--to", NEXT, "--cluster"]) == ClusterError.exit_code
    error = capsys.readouterr().err
    assert "no cluster is configured: the kubeconfig does not exist" in error
    assert "Fix: Set KUBECONFIG or --kubeconfig, or omit --cluster." in error
    assert "penstock diff" not in error


def test_upgrade_writes_nothing_with_half_installed_crds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Half:
        def definition(self, name: str) -> dict[str, Any] | None:
            return COMPLETE[name] if name == GRAPHS else None

    monkeypatch.setattr(Api, "connect", lambda _: Half())
    file = tmp_path / "llm.yaml"
    file.write_text(GRAPH)
    assert main(["upgrade", str(file), "--to", NEXT, "--cluster"]) == ClusterError.exit_code
    assert file.read_text() == GRAPH
    assert "1 of 4 of Dynamo's CRDs are installed" in capsys.readouterr().err


@pytest.fixture(name="crd_file")
@needed_by_its_tests("crds")
def fixture_crd_file(tmp_path: Path) -> Path:
    """A copy of the published CRD."""
    return Path(shutil.copy(CRD, tmp_path))


# llama.cpp runs with penstock's own Dynamo only.
UPGRADABLE = [name for name in GRAPH_FILES if name != "quickstart.yaml"]


@pytest.mark.needs("crds")
@pytest.mark.parametrize("name", UPGRADABLE)
def test_the_published_crd_has_the_fields_of_every_graph(name: str, crd_file: Path) -> None:
    path = ROOT / "dynamo_graphs" / name
    upgrade = plan_upgrade(path.read_text(), path, NEXT)
    assert [*field_problems(read_fields(crd_file), upgrade, "the CRD", "")] == []


@pytest.mark.needs("crds")
@pytest.mark.parametrize(
    ("name", "replacement", "texts"),
    [
        (
            "backendFramework:",
            "backendFrameworks:",
            [
                "spec.backendFramework",
                "has no such field (it has backendFrameworks): the graph needs it",
            ],
        ),
        # Earlier CRDs had no such field, which a tag such as 1.7.0.dev20261026 needs.
        (
            "runtimeVersionOverride:",
            "other:",
            [
                "spec.components[0].runtimeVersionOverride",
                "Fix: Use newer CRDs, or an image with a tag such as 1.6.1",
            ],
        ),
        (
            "served: true",
            "served: false",
            ["serves nvidia.com/v1alpha1. Fix: Use the CRDs of an operator that serves"],
        ),
    ],
)
def test_what_the_new_crd_lacks_is_named_and_nothing_is_written(
    crd_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    replacement: str,
    texts: list[str],
) -> None:
    text = crd_file.read_text()
    if name == "served: true":  # only of the last version
        head, _, tail = text.rpartition(name)
        crd_file.write_text(f"{head}{replacement}{tail}")
    else:
        crd_file.write_text(text.replace(name, replacement))
    file = tmp_path / "llm.yaml"
    file.write_text(GRAPH)
    args = ["upgrade", str(file), "--to", NEXT, "--crds", str(crd_file)]
    assert main(args) == GraphError.exit_code
    assert file.read_text() == GRAPH
    error = capsys.readouterr().err
    assert [text for text in texts if text not in error] == []


@pytest.mark.needs("crds")
def test_a_cluster_whose_crd_lacks_a_field(
    crd_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crd = yaml.load(
        crd_file.read_text().replace("backendFramework:", "backendFrameworks:"), SafeLoader
    )
    definitions = COMPLETE | {GRAPHS: crd | {"status": COMPLETE[GRAPHS]["status"]}}

    class Older:
        def definition(self, name: str) -> dict[str, Any]:
            return definitions[name]

    monkeypatch.setattr(Api, "connect", lambda _: Older())
    file = tmp_path / "llm.yaml"
    file.write_text(GRAPH)
    assert main(["upgrade", str(file), "--to", NEXT, "--cluster"]) == ClusterError.exit_code
    assert file.read_text() == GRAPH


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("kind: ConfigMap\nmetadata: {name: x}\n", f"has no CRD {GRAPHS}"),
        ("", f"has no CRD {GRAPHS}"),
        ("a: [\n", "is not valid YAML"),
        ("- 1\n", "is not a CRD"),
        (f"metadata: {{name: {GRAPHS}}}\n", "is not a CRD, or not a complete one"),
    ],
)
def test_a_file_that_is_no_crd(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "crd.yaml"
    file.write_text(content)
    with pytest.raises(InputError) as caught:
        read_fields(file)
    (problem,) = caught.value.problems
    assert problem.message.startswith(message)
    assert "kubectl get crd" in problem.fix


def test_a_plain_graph_needs_no_crds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "llm.yaml"
    file.write_text(f"platform: plain\n{GRAPH}")
    for option in (["--crds", "crds.yaml"], ["--cluster"]):
        assert main(["upgrade", str(file), "--to", NEXT, *option]) == 2
        assert f"needs no CRDs: omit {option[0]}" in capsys.readouterr().err
    assert file.read_text() == f"platform: plain\n{GRAPH}"
