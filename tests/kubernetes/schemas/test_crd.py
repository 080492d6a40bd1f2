"""The validator of custom resources: each of its steps on a small CRD, then Dynamo's own."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.kubernetes_schemas import crd
from tests.support.kubernetes_schemas.dgd import CRD, GRAPHS, RECIPES, graph_of, recipe, rendered
from tests.support.kubernetes_schemas.edit import REMOVED, edited

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


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"mode": "b", "replicas": 0},
        {"size": 5},
        {"size": "5Gi"},
        {"free": {"any": [{"thing": None}]}},
        {"names": {"x/y": "z"}},
        {"tags": ["a", "b"]},
        {"ports": [{"name": "a"}, {"name": "a", "protocol": "UDP"}]},
        {"loose": [{"name": "a"}, {"name": "a"}]},
        {"when": "2026-11-21T20:00:00Z"},
        {"whole": {"apiVersion": "v1", "kind": "X", "metadata": {"labels": {"a": "b"}}, "y": 1}},
    ],
)
def test_valid_values_are_accepted(spec: dict[str, Any]) -> None:
    assert problems_of(**spec) == {}


@pytest.mark.parametrize(
    ("spec", "place", "message"),
    [
        ({"mod": "a"}, "spec.mod", "unknown field"),
        ({"ports": [{"name": "a", "nr": 1}]}, "spec.ports[0].nr", "unknown field"),
        ({"mode": "c"}, "spec.mode", "'c' is not one of"),
        ({"replicas": "1"}, "spec.replicas", "is not of type 'integer'"),
        ({"replicas": True}, "spec.replicas", "is not of type 'integer'"),
        ({"replicas": -1}, "spec.replicas", "less than the minimum"),
        ({"replicas": 2**31}, "spec.replicas", "greater than the maximum"),
        ({"size": "5GB"}, "spec.size", "does not match"),
        ({"size": "5Gi\n"}, "spec.size", "does not match"),
        ({"size": 1.5}, "spec.size", "is not of type 'integer', 'string'"),
        ({"names": {"a": 1}}, "spec.names.a", "is not of type 'string'"),
        ({"tags": ["a", "a"]}, "spec.tags[1]", "duplicate 'a'"),
        ({"tags": [None]}, "spec.tags[0]", "None is not of type 'string'"),
        ({"ports": [{"number": 1}]}, "spec.ports[0].name", "missing"),
        (
            {"ports": [{"name": "a"}, {"name": "a", "protocol": "TCP"}]},
            "spec.ports[1]",
            "duplicate name='a', protocol='TCP'",
        ),
        ({"when": "yesterday"}, "spec.when", "is not a 'date-time'"),
        ({"whole": {"kind": "X"}}, "spec.whole.apiVersion", "missing"),
        (
            {"whole": {"apiVersion": "v1", "kind": "X", "metadata": {"label": {}}}},
            "spec.whole.metadata.label",
            "unknown field",
        ),
    ],
)
def test_schema_violations_are_rejected(spec: dict[str, Any], place: str, message: str) -> None:
    found = problems_of(**spec)
    assert list(found) == [place]
    assert message in found[place]


def test_defaults_and_nulls_are_handled_before_validation() -> None:
    given = widget(mode=None, replicas=None, note=None, names={"a": None}, ports=[{"name": "p"}])
    assert WIDGET.defaulted(given)["spec"] == {
        "mode": "a",
        "note": None,
        "names": {},
        "ports": [{"name": "p", "protocol": "TCP"}],
        "share": {"of": "1Gi"},
    }


def test_yaml_keys_and_dates_become_strings() -> None:
    given = widget(names={1: date(2026, 11, 21)})
    assert WIDGET.problems(given) == []
    assert WIDGET.defaulted(given)["spec"]["names"] == {"1": "2026-11-21"}


def test_the_clients_status_is_dropped() -> None:
    assert WIDGET.problems({**widget(), "status": {"typo": 1}}) == []


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"metadata/name": REMOVED}, "metadata.name"),
        ({"metadata": REMOVED}, "metadata.name"),
        ({"metadata/name": "W"}, "metadata.name"),
        ({"metadata/name": "a" * 254}, "metadata.name"),
        ({"metadata/namespace": "a.b"}, "metadata.namespace"),
        ({"metadata/labels": {"a": "b c"}}, "metadata.labels"),
        ({"metadata/labels": {"a": 1}}, "metadata.labels.a"),
        ({"metadata/annotations": {"a b": "c"}}, "metadata.annotations"),
        ({"metadata/lables": {}}, "metadata.lables"),
        ({"kind": "Gadget"}, "kind"),
        ({"specs": {}}, "specs"),
    ],
)
def test_metadata_is_validated(changes: dict[str, Any], place: str) -> None:
    assert [where for where, _ in WIDGET.problems(edited(widget(), changes))] == [place]


def test_a_cluster_wide_kind_has_no_namespace() -> None:
    (wide,) = crd.parsed(edited(WIDGETS, {"spec/scope": "Cluster"})).values()
    assert wide.problems(widget()) == []
    placed = edited(widget(), {"metadata/namespace": "a"})
    assert wide.problems(placed) == [("metadata.namespace", "the kind has no namespace")]


def test_a_generated_name_and_a_null_timestamp_are_accepted() -> None:
    meta = {"generateName": "w-", "creationTimestamp": None, "annotations": {"a/b": "c d"}}
    assert WIDGET.problems({**widget(), "metadata": meta}) == []


def test_a_rule_reports_its_message_expression_message_or_text() -> None:
    assert problems_of(share={"of": "3Gi"}) == {"spec.share.of": "3Gi is too much"}
    assert problems_of(tags=["a", "b", "c"]) == {
        "spec": "failed rule: !has(self.tags) || self.tags.size() < 3"
    }


def test_a_rule_that_cannot_be_evaluated_rejects() -> None:
    found = problems_of(share={"of": "much"})
    assert "fallback: rule cannot be evaluated" in found["spec.share.of"]


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


def test_an_unserved_version_is_reported_with_the_served_ones(tmp_path: Path) -> None:
    file = tmp_path / "crd.yaml"
    file.write_text(yaml.safe_dump(WIDGETS))
    ((place, message),) = crd.problems(file, {**widget(), "apiVersion": "example.com/v0"})
    assert (place, message) == (
        "apiVersion",
        "'example.com/v0' is not served; known: example.com/v1",
    )
    assert crd.problems(file, widget()) == []


@pytest.mark.needs("crds")
@pytest.mark.parametrize("graph", GRAPHS)
def test_the_rendered_chart_is_accepted(graph: str) -> None:
    document = graph_of(rendered(graph))
    assert crd.problems(CRD, document) == []
    assert crd.problems(CRD, document, document) == []


@pytest.mark.needs("crds", "recipes")
@pytest.mark.parametrize("name", FILES)
def test_published_recipes_without_placeholders_are_accepted(name: str) -> None:
    found = {place for document in recipe(name) for place, _ in crd.problems(CRD, document)}
    assert found == PLACEHOLDERS.get(name, set())


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
