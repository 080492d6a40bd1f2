"""The validator of custom resources: each of its steps on a small CRD, then Dynamo's own."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.kubernetes_schemas import crd
from tests.support.kubernetes_schemas.dgd import CRD, RECIPES, graph_of, recipe, rendered
from tests.support.kubernetes_schemas.edit import edited

FILES = sorted(path.name for path in RECIPES.glob("*.yaml"))
PLACEHOLDERS = {
    "recipes_deepseek-v4_deepseek-v4-pro_sglang_agg-gb200_deploy.yaml": {"metadata.namespace"},
    "recipes_glm-5-nvfp4_sglang_disagg_efa_deploy.yaml": {"metadata.namespace"},
    "recipes_qwen3.6-35b_deploy_dynamo-fd-ec.yaml": {
        "spec.services.Frontend.extraPodSpec.nodeSelector",
        "spec.services.Frontend.extraPodSpec.tolerations",
        "spec.services.VllmWorker.extraPodSpec.nodeSelector",
        "spec.services.VllmWorker.extraPodSpec.tolerations",
    },
}


@pytest.mark.needs("crds", "recipes")
@pytest.mark.parametrize("name", FILES)
def test_published_recipes_without_placeholders_are_accepted(name: str) -> None:
    places = {place for document in recipe(name) for place, _ in crd.problems(CRD, document)}
    assert places == PLACEHOLDERS.get(name, set())


COMPONENT = "spec/components/1"
POD = f"{COMPONENT}/podTemplate/spec"


@pytest.mark.needs("crds")
@pytest.mark.parametrize(
    ("changes", "place", "message"),
    [
        ({f"{COMPONENT}/replica": 2}, ".replica", "unknown field"),
        ({f"{COMPONENT}/replicas": "2"}, ".replicas", "is not of type 'integer'"),
        ({f"{COMPONENT}/type": "leader"}, ".type", "is not one of"),
        ({f"{COMPONENT}/name": "a_b"}, ".name", "does not match"),
        ({f"{COMPONENT}/sharedMemorySize": "64GB"}, ".sharedMemorySize", "does not match"),
        ({f"{COMPONENT}/scalingAdapter": {"enabled": True}}, ".enabled", "unknown field"),
        ({f"{POD}/containers/0/imagepullPolicy": "Always"}, ".imagepullPolicy", "unknown field"),
        ({f"{POD}/containers/0/env": [{"name": "A"}, {"name": "A"}]}, "env[1]", "duplicate"),
        ({f"{POD}/containers/0/env": [{"name": "A", "value": 1}]}, "value", "type 'string'"),
    ],
)
def test_an_error_in_a_rendered_graph_is_rejected(
    changes: dict[str, Any], place: str, message: str
) -> None:
    broken = edited(graph_of(rendered("cpu-disagg.yaml")), changes)
    ((where, reported),) = crd.problems(CRD, broken)
    assert where.startswith("spec.components[1]")
    assert where.endswith(place)
    assert message in reported


@pytest.mark.needs("crds")
def test_a_null_in_a_rendered_graph_is_ignored() -> None:
    nulls = {f"{COMPONENT}/replicas": None, f"{POD}/nodeSelector": None}
    document = edited(graph_of(rendered("cpu-disagg.yaml")), nulls)
    assert crd.problems(CRD, document) == []
