"""The field `dynamo`: versions, their order, and images that contradict it."""

from __future__ import annotations

import json
import re

import pytest

from penstock.errors import ChartError, GraphError
from penstock.graph.load import parse_graph
from penstock.graph.versions import VERSIONS, order, version_in_tag, with_version
from penstock.manifests.render import render

NEXT = "1.7.0.dev20261026"
GRAPH = "model: {id: a/b}\nengine: {kind: mocker}\nworker: {}\n"


def test_versions_are_in_order() -> None:
    assert list(VERSIONS) == sorted(VERSIONS, key=order)
    assert order(NEXT) < order("1.7.0") < order("1.7.1")


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.6.1", "1.6.1"),
        ("reg:5000/vllm:v1.6.1-efa", "1.6.1"),
        (f"vllm:{NEXT}", NEXT),
        ("vllm:1.7.0", "1.7.0"),
        ("vllm:1.7.0-efa", "1.7.0"),
        ("vllm:1.7.0.dev20261027", None),
        ("vllm:1.6.1-cuda13-x1.5.1", "1.6.1"),
        ("reg:5000/vllm", None),
        ("vllm:latest", None),
        ("vllm:1.6", None),
        ("vllm:1.6.1.2", None),
        ("vllm:1.6.1@sha256:" + "ab" * 32, None),
        ("vllm:1.6.1.post1", None),
        ("vllm:1.6.1-rc2", None),
        ("vllm:1.6.1-rc.2-efa", None),
        ("vllm:1.6.1-20261026", None),
        ("vllm:12.8.1-dynamo1.6.1", None),
        ("my-runtime:2.3.4", None),
    ],
)
def test_model_and_chart_read_the_same_version_in_a_tag(image: str, version: str | None) -> None:
    assert version_in_tag(image) == version
    other = "1.5.1" if version != "1.5.1" else "1.6.1"
    values = {**VLLM, "dynamo": other, "engine": {"kind": "vllm", "image": image}}
    text = "".join(f"{key}: {json.dumps(value)}\n" for key, value in values.items())
    if version is None:
        assert parse_graph(text, "g.yaml").graph.images == {"engine.image": image}
        render(values, name="g")
        return
    message = f"Set the image to `{with_version(image, other)}`, or set"
    with pytest.raises(GraphError, match=re.escape(message)):
        parse_graph(text, "g.yaml")
    with pytest.raises(ChartError, match=re.escape(message)):
        render(values, name="g")


def test_a_new_version_keeps_the_rest_of_the_tag() -> None:
    assert with_version("reg:5000/a:1.6.1-efa", NEXT) == f"reg:5000/a:{NEXT}-efa"
    assert with_version("a:v1.6.1-efa", NEXT) == f"a:v{NEXT}-efa"
    assert with_version(f"a:{NEXT}-x", "1.6.1") == "a:1.6.1-x"


@pytest.mark.parametrize("tag", ["2.3.4", "v2.3.4", "12.8.1-dynamo1.6.1"])
def test_the_operator_gets_the_graphs_version_and_not_that_of_another_tag(tag: str) -> None:
    values = {**VLLM, "engine": {"kind": "vllm", "image": f"reg/my-runtime:{tag}"}}
    text = str(render({**values, "dynamo": "1.6.1"}, name="g").objects)
    assert "'runtimeVersionOverride': '1.6.1'" in text


@pytest.mark.parametrize(
    ("dynamo", "got", "fix"),
    [
        (1.6, "1.6", "Did you mean `1.6.1`?"),
        ("1.6", '"1.6"', "Did you mean `1.6.1`?"),
        ("1.7", '"1.7"', "Did you mean `1.7.0`?"),
        ("1.7.0.dev", '"1.7.0.dev"', f"Did you mean `{NEXT}`?"),
        ("9.9.9", '"9.9.9"', "Write one of them"),
    ],
)
def test_a_version_that_does_not_exist_has_one_message(dynamo: object, got: str, fix: str) -> None:
    message = f"dynamo: must be one of {', '.join(VERSIONS)}, got {got}. Fix: {fix}"
    with pytest.raises(GraphError) as in_file:
        parse_graph(f"dynamo: {json.dumps(dynamo)}\n{GRAPH}", "g.yaml")
    with pytest.raises(ChartError) as in_chart:
        render({**BASE, "dynamo": dynamo}, name="g")
    for caught in (in_file, in_chart):
        assert message in str(caught.value)
        assert "<nil>" not in str(caught.value)
    if isinstance(dynamo, str):
        with pytest.raises(GraphError) as in_set:
            parse_graph(GRAPH, "g.yaml", [f"dynamo={dynamo}"])
        assert message in str(in_set.value)


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


VLLM = {"model": {"id": "a/b"}, "engine": {"kind": "vllm"}, "worker": {}}
BASE = {"model": {"id": "a/b"}, "engine": {"kind": "mocker"}, "worker": {}}
