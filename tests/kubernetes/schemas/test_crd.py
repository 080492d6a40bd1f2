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

PORT = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string"},
        "protocol": {"type": "string", "default": "TCP"},
        "number": {"type": "integer"},
    },
    "x-kubernetes-validations": [
        {"rule": "!has(oldSelf.number) || self.number >= oldSelf.number", "message": "must grow"}
    ],
}
SPEC = {
    "type": "object",
    "required": ["mode"],
    "properties": {
        "mode": {"type": "string", "enum": ["a", "b"], "default": "a"},
        "replicas": {"type": "integer", "format": "int32", "minimum": 0},
        "size": {"x-kubernetes-int-or-string": True, "pattern": "^[0-9]+(Gi)?$"},
        "note": {"type": "string", "nullable": True, "maxLength": 3},
        "when": {"type": "string", "format": "date-time"},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "names": {"type": "object", "additionalProperties": {"type": "string"}},
        "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        "whole": {
            "type": "object",
            "x-kubernetes-embedded-resource": True,
            "x-kubernetes-preserve-unknown-fields": True,
        },
        "ports": {
            "type": "array",
            "items": PORT,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name", "protocol"],
        },
        "solid": {"type": "object", "properties": {"in": PORT}, "x-kubernetes-map-type": "atomic"},
        "loose": {"type": "array", "items": PORT, "x-kubernetes-list-type": "atomic"},
        "share": {
            "type": "object",
            "default": {},
            "properties": {"of": {"type": "string", "default": "1Gi"}},
            "x-kubernetes-validations": [
                {
                    "rule": "quantity(self.of).isLessThan(quantity('2Gi'))",
                    "fieldPath": ".of",
                    "message": "fallback",
                    "messageExpression": "self.of + ' is too much'",
                }
            ],
        },
    },
    "x-kubernetes-validations": [
        {"rule": "!has(self.tags) || self.tags.size() < 3"},
        {"rule": "self.mode == oldSelf.mode", "message": "mode stays"},
        {
            "rule": "oldSelf.hasValue() || !has(self.note)",
            "optionalOldSelf": True,
            "message": "no note at first",
        },
    ],
}
WIDGETS = {
    "spec": {
        "group": "example.com",
        "names": {"kind": "Widget"},
        "scope": "Namespaced",
        "versions": [
            {"name": "v0", "served": False, "schema": {"openAPIV3Schema": {"type": "object"}}},
            {
                "name": "v1",
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {"spec": SPEC, "status": {"type": "object"}},
                    }
                },
            },
        ],
    }
}
(WIDGET,) = crd.parsed(WIDGETS).values()


def widget(**spec: Any) -> dict[str, Any]:
    meta = {"name": "w"}
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": meta, "spec": spec}


def problems_of(old: dict[str, Any] | None = None, **spec: Any) -> dict[str, str]:
    before = None if old is None else widget(**old)
    return dict(WIDGET.problems(widget(**spec), before))


def test_a_rule_reports_its_message_expression_message_or_text() -> None:
    assert problems_of(share={"of": "3Gi"}) == {"spec.share.of": "3Gi is too much"}
    assert problems_of(tags=["a", "b", "c"]) == {
        "spec": "failed rule: !has(self.tags) || self.tags.size() < 3"
    }


def test_a_rule_that_cannot_be_evaluated_rejects() -> None:
    problems = problems_of(share={"of": "much"})
    assert "fallback: rule cannot be evaluated" in problems["spec.share.of"]


def test_transition_rules_need_an_old_value() -> None:
    assert problems_of(mode="b") == {}
    assert problems_of({"mode": "a"}, mode="b") == {"spec": "mode stays"}
    assert problems_of({"mode": "b"}, mode="b") == {}


def test_a_rule_with_an_optional_old_value_is_evaluated_on_create() -> None:
    assert problems_of(note="x") == {"spec": "no note at first"}
    assert problems_of({}, note="x") == {}
    assert problems_of({}, note=None) == {}


def test_old_items_are_matched_by_key_except_in_atomic_values() -> None:
    old = {"ports": [{"name": "a", "number": 1}, {"name": "b", "number": 5}]}
    assert problems_of(old, ports=[{"name": "b", "number": 4}, {"name": "a", "number": 2}]) == {
        "spec.ports[0]": "must grow"
    }
    assert problems_of(old, ports=[{"name": "c", "number": 0}]) == {}
    five, four = ({"name": "a", "number": n} for n in (5, 4))
    assert problems_of({"loose": [five]}, loose=[four]) == {}
    assert problems_of({"solid": {"in": five}}, solid={"in": four}) == {}


def test_an_unchanged_old_violation_is_accepted() -> None:
    assert problems_of({"size": "5GB"}, size="5GB", replicas=2) == {}
    assert "spec.size" in problems_of({"size": "5GB"}, size="6GB")
    assert problems_of({"share": {"of": "3Gi"}}, share={"of": "3Gi"}, replicas=2) == {}
    wrong = {"name": "a", "number": "x"}
    assert problems_of({"loose": [wrong]}, loose=[wrong], mode="a") == {}
    assert list(problems_of({"loose": [wrong]}, loose=[wrong, {"name": "b"}])) == [
        "spec.loose[0].number"
    ]
    assert problems_of({"typo": 1}, typo=1) == {"spec.typo": "unknown field"}


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
