"""The field `dynamo`: versions, their order, and images that contradict it."""

from __future__ import annotations

import pytest

from penstock.errors import ChartError, GraphError
from penstock.graph.load import parse_graph
from penstock.graph.versions import VERSIONS, order, release_in_tag, with_release
from penstock.manifests.render import render

NEXT = "1.7.0.dev20261026"
GRAPH = "model: {id: a/b}\nengine: {kind: mocker}\nworker: {}\n"


def test_versions_are_in_order() -> None:
    assert list(VERSIONS) == sorted(VERSIONS, key=order)
    assert order(NEXT) < order("1.7.0") < order("1.7.1")


@pytest.mark.parametrize(
    ("image", "release"),
    [
        ("nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.6.1", "1.6.1"),
        ("reg:5000/vllm:v1.6.1-efa", "1.6.1"),
        (f"vllm:{NEXT}", "1.7.0"),
        ("reg:5000/vllm", None),
        ("vllm:latest", None),
        ("vllm:1.6", None),
        ("vllm:1.6.1.2", None),
        ("vllm:1.6.1@sha256:ab", None),
    ],
)
def test_the_release_in_a_tag(image: str, release: str | None) -> None:
    assert release_in_tag(image) == release


def test_a_new_release_keeps_the_rest_of_the_tag() -> None:
    assert with_release("reg:5000/a:1.6.1-efa", NEXT) == f"reg:5000/a:{NEXT}-efa"
    assert with_release(f"a:{NEXT}-x", "1.8.0") == "a:1.8.0-x"


@pytest.mark.parametrize("section", ["engine", "frontend", "worker"])
def test_an_image_with_another_version_is_refused(section: str) -> None:
    image = "reg:5000/x/y:1.6.1-efa"
    values = {
        "dynamo": NEXT,
        "model": {"id": "a/b"},
        "engine": {"kind": "mocker"},
        "worker": {},
        "frontend": {},
    }
    values[section] = {**values[section], "image": image}  # type: ignore[dict-item]
    text = "".join(f"{key}: {value}\n" for key, value in values.items())
    message = (
        f"{section}.image: {image} has Dynamo 1.6.1, but `dynamo` is {NEXT}. Fix: Set the image to "
        f"`reg:5000/x/y:{NEXT}-efa`, or set `dynamo` to the version in the image."
    )
    with pytest.raises(GraphError) as caught:
        parse_graph(text, "g.yaml")
    assert message in str(caught.value)
    with pytest.raises(ChartError) as refused:
        render(values, name="g")
    assert message in str(refused.value)


def test_the_mocker_of_1_5_is_refused() -> None:
    message = "dynamo: the mocker of Dynamo 1.5.1 does not read the configuration"
    with pytest.raises(GraphError, match=message):
        parse_graph(f'dynamo: "1.5.1"\n{GRAPH}', "g.yaml")
    with pytest.raises(ChartError, match=message):
        render({"dynamo": "1.5.1", **BASE}, name="g")


def test_without_the_field_the_image_decides() -> None:
    graph = parse_graph(f"{GRAPH}frontend: {{image: 'a:1.5.1'}}\n", "g.yaml").graph
    assert graph.dynamo_version == "1.6.1"


def test_the_field_gives_the_images() -> None:
    text = "\n".join(str(o) for o in render({"dynamo": NEXT, **BASE}, name="g").objects)
    assert f"dynamo-planner:{NEXT}" in text
    assert "'runtimeVersionOverride': '1.7.0'" in text
    assert "1.6.1" not in text.replace("1.6.1 ", "")


BASE = {"model": {"id": "a/b"}, "engine": {"kind": "mocker"}, "worker": {}}
