"""Files of other kinds and in other encodings: what the message says that they are."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from penstock.checks.finding import Finding, Level
from penstock.checks.run import check_file
from penstock.cli.main import main
from penstock.serving.understand import Hints

GRAPH = "model: {id: Qwen/Qwen3-0.6B}\nworker: {replicas: 1}\nengine: {kind: vllm}\n"
DGD = {
    "apiVersion": "nvidia.com/v1alpha1",
    "kind": "DynamoGraphDeployment",
    "metadata": {"name": "x"},
    "spec": {"services": {"Frontend": {"componentType": "frontend", "replicas": "1"}}},
}
NOT_COMPLETE = "no extraPodSpec.mainContainer, which has the image"


def errors_of(path: Path) -> list[Finding]:
    return [finding for finding in check_file(path, Hints()) if finding.level is Level.ERROR]


def only_error(folder: Path, content: str | bytes, name: str = "graph.yaml") -> Finding:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    (error,) = errors_of(path)
    return error


@pytest.mark.parametrize(
    ("content", "message", "fix"),
    [
        (GRAPH.encode("utf-16"), "is UTF-16, not UTF-8", "iconv -f UTF-16 -t UTF-8"),
        (GRAPH.encode("utf-16-le"), "is UTF-16, not UTF-8", "iconv -f UTF-16LE -t UTF-8"),
        (GRAPH.encode("utf-16-be"), "is UTF-16, not UTF-8", "iconv -f UTF-16BE -t UTF-8"),
        (GRAPH.encode("utf-32"), "is UTF-32, not UTF-8", "iconv -f UTF-32 -t UTF-8"),
        (gzip.compress(GRAPH.encode(), mtime=0), "is compressed with gzip", "gunzip"),
        (b"PK\x03\x04\x14\0\0\0", "is a ZIP archive", "Extract it"),
        (b"\x7fELF\2\1\1" + bytes(90), "is a binary file, not text", "Name a graph"),
        ("# für\n".encode("latin-1"), "not UTF-8: byte 0xfc at offset 3", "as UTF-8"),
    ],
)
def test_a_file_that_is_not_utf8_text_says_what_it_is(
    tmp_path: Path, content: bytes, message: str, fix: str
) -> None:
    error = only_error(tmp_path, content)
    assert (error.rule, message in error.message) == ("PS001", True)
    assert fix in error.fix


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_byte_order_mark_and_other_line_ends_are_no_problem(tmp_path: Path, end: str) -> None:
    path = tmp_path / "graph.yaml"
    path.write_bytes(GRAPH.replace("\n", end).encode("utf-8-sig"))
    assert errors_of(path) == []


def test_a_manifest_with_a_byte_order_mark_is_a_manifest(tmp_path: Path) -> None:
    error = only_error(tmp_path, json.dumps(DGD, indent=1).encode("utf-8-sig"))
    assert error.message == NOT_COMPLETE


def test_a_named_pipe_and_a_device_are_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    errors = [errors_of(path)[0] for path in (tmp_path / "pipe", Path("/dev/zero"))]
    assert [e.message for e in errors] == ["is a named pipe, not a file", "is a device, not a file"]


def test_an_empty_path_is_not_the_current_folder(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["check", ""])
    assert "the path is empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    "content",
    [
        DGD,
        {"apiVersion": "v1", "items": [DGD], "kind": "List", "metadata": {}},
        {"apiVersion": "v1", "kind": "List", "items": [{"kind": "List", "items": [DGD]}]},
        {
            "apiVersion": DGD["apiVersion"],
            "kind": "DynamoGraphDeploymentList",
            "items": [{key: DGD[key] for key in ("metadata", "spec")}],
        },
    ],
)
@pytest.mark.parametrize("indent", [None, 2])
def test_json_is_read_as_a_manifest(tmp_path: Path, content: object, indent: int | None) -> None:
    text = json.dumps(content, indent=indent)
    error = only_error(tmp_path, text)
    assert (error.place, error.message) == ("spec.services.Frontend", NOT_COMPLETE)
    line = text.splitlines()[(error.line or 0) - 1]
    assert line[(error.column or 0) - 1 :].startswith('"Frontend"')


def test_arguments_in_one_line_of_json_have_their_column(tmp_path: Path) -> None:
    command = ["python3", "-m", "dynamo.frontend"]
    image = "nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.6.1"
    main_container = {"name": "main", "image": image, "command": command, "args": ["--xyz", "1"]}
    component = {
        "name": "Frontend",
        "type": "frontend",
        "podTemplate": {"spec": {"containers": [main_container]}},
    }
    text = json.dumps(
        DGD | {"apiVersion": "nvidia.com/v1beta1", "spec": {"components": [component]}}
    )
    (tmp_path / "f.json").write_text(text)
    finding = next(f for f in check_file(tmp_path / "f.json", Hints()) if "--xyz" in f.message)
    assert (finding.line, text[(finding.column or 0) - 1 :][:7]) == (1, '"--xyz"')


@pytest.mark.parametrize("items", ["items: []", "items:"])
def test_a_list_without_items_is_not_empty(tmp_path: Path, items: str) -> None:
    error = only_error(tmp_path, f"apiVersion: v1\nkind: List\n{items}\n")
    assert (error.line, error.place) == (3, "items")
    assert error.message == "the list has no items: `kubectl get` found no object"
    assert "-n NAMESPACE" in error.fix


def test_services_in_a_list_have_a_fix(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_text(json.dumps(DGD | {"spec": {"services": []}}))
    errors = {error.place: error for error in errors_of(path)}
    assert errors["spec.services"].message == "must be a mapping, got []"
    assert errors["spec.services"].fix == "Write `key: value` lines."


@pytest.mark.parametrize(
    ("kind", "about", "fix"),
    [
        ("DynamoGraphDeploymentRequest", "from which the operator generates", "-o yaml > FILE"),
        ("DynamoComponentDeployment", "creates for each component", "-o yaml > FILE"),
        ("DynamoModel", "a model or LoRA adapter", "Pass the file"),
        ("DynamoGraphDeploymentScalingAdapter", "holds the replicas", "in one file"),
        ("DynamoWorkerMetadata", "for discovery", "-o yaml > FILE"),
        ("DynamoCheckpoint", "Dynamo 1.5 removed", "Pass the file"),
        ("Kustomization", "files of an overlay", "kubectl kustomize DIR > FILE"),
        ("Component", "overlays of Kustomize use", "kubectl kustomize DIR > FILE"),
        ("DynamoGraphDeployments", "", "Did you mean `kind: DynamoGraphDeployment`"),
        ("Service", "", "Pass a graph, or a manifest with"),
    ],
)
def test_an_object_of_another_kind_says_what_it_is(
    tmp_path: Path, kind: str, about: str, fix: str
) -> None:
    text = f"# c\napiVersion: nvidia.com/v1beta1\nkind: {kind}\nmetadata: {{name: x}}\n"
    error = only_error(tmp_path, text)
    assert error.line == 2
    assert kind in error.message
    assert about in error.message
    assert fix in error.fix
    assert "penstock" not in error.fix  # several commands print it


@pytest.mark.parametrize(
    ("missing", "message"),
    [("apiVersion", "no apiVersion"), ("kind", "only: a document without kind")],
)
def test_a_deployment_without_a_header_is_a_manifest(
    tmp_path: Path, missing: str, message: str
) -> None:
    text = json.dumps({key: value for key, value in DGD.items() if key != missing})
    error = errors_of_text(tmp_path, text)[0]
    assert message in error.message
    assert error.fix


def errors_of_text(folder: Path, text: str) -> list[Finding]:
    (folder / "graph.yaml").write_text(text)
    return errors_of(folder / "graph.yaml")


@pytest.mark.parametrize(
    ("name", "text", "what", "fix"),
    [
        ("Chart.yaml", "apiVersion: v2\nname: x\nversion: 0.1.0\n", "Chart.yaml", "helm template"),
        ("kustomization.yaml", "resources: [a.yaml]\n", "kustomization.yaml", "kubectl kustomize"),
        ("k.yaml", "resources: [a]\npatches: []\n", "kustomization.yaml", "kubectl kustomize"),
        ("c.yaml", "services: {a: {image: b}}\n", "a Compose file", "penstock init"),
        ("c.yaml", "model: x\nservices: {a: {image: b}}\n", "a Compose file", "penstock init"),
        (
            "v.yaml",
            "modelArtifacts: {uri: hf://a/b}\ndecode: {parallelism: {tensor: 1}}\n",
            "the values file of another Helm chart",
            "penstock init",
        ),
        ("p.json", '{"name": "x", "version": "1"}', "none of its keys", "penstock init"),
        ("w.yaml", "requests: 9\ninput: 9\noutput: 9\n", "a workload", "penstock simulate"),
    ],
)
def test_a_file_that_is_no_graph_says_what_to_run(
    tmp_path: Path, name: str, text: str, what: str, fix: str
) -> None:
    error = only_error(tmp_path, text, name)
    assert what in error.message
    assert fix in error.fix
