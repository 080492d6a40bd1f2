"""Manifests are checked by the CRD of the operator, whatever the versions of their images."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import dump_dgd_fields
from penstock.checks.finding import Finding, Level
from penstock.checks.registry import by_id
from penstock.manifests.fields import bad_values, resolved, stored, stored_releases, unknown_fields
from penstock.strict_yaml.places import place_of
from tests.checks.own_manifests import alpha, component, deployment
from tests.checks.support import check, vllm_agg_dgd
from tests.support.command_line import penstock
from tests.support.kubernetes_schemas import crd
from tests.support.kubernetes_schemas.dgd import CRD, recipe
from tests.support.kubernetes_schemas.edit import REMOVED, edited
from tests.support.outside_files import recordings

OF_CRD = ("PS004", "PS768", "PS773", "PS779", "PS786")
IMAGE = "nvcr.io/nvidia/ai-dynamo/vllm-runtime"
LIMITS = {"limits": {"gpu": "2"}}
WORKER = "dgd/spec/components/worker"


def errors(text: str, operator: str = "1.6") -> list[Finding]:
    return [f for f in check(text, operator=operator) if f.level is Level.ERROR]


def messages(text: str, operator: str = "1.6") -> list[str]:
    return [f"{f.rule} {f.message}. {f.fix}" for f in errors(text, operator)]


@pytest.mark.parametrize("tag", ["0.9.0", "1.3.0", "1.6.1", "1.9.0"])
@pytest.mark.parametrize(
    ("changes", "rule", "fix"),
    [
        ({"replica": 1}, "PS768", "Use replicas."),
        ({"resources": {"limit": {"gpu": "2"}}}, "PS768", "Use limits."),
        ({"env": [{"name": "A", "value": "b"}], "resources": LIMITS}, "PS768", "Use envs."),
        ({"resources": {"limits": {"gpu": 2}}}, "PS779", 'Quote it: "2"'),
        ({"componentType": "workr"}, "PS786", "Use worker."),
        ({"subComponentType": "prefil"}, "PS786", "Use prefill."),
        ({"componentType": None}, "PS773", "Set its componentType."),
        ({"replicas": "one"}, "PS004", "Write an integer."),
        ({"multinode": {"nodeCount": "two"}}, "PS004", "Write an integer."),
    ],
)
def test_a_slip_is_one_error_at_every_image_tag(
    tag: str, changes: dict[str, Any], rule: str, fix: str
) -> None:
    text = alpha(changes, image=f"{IMAGE}:{tag}")
    assert [(f.rule, f.fix) for f in errors(text) if f.rule in OF_CRD] == [(rule, fix)]


@pytest.mark.parametrize("tag", ["0.9.0", "1.3.0", "1.6.1", "1.9.0"])
def test_an_unknown_type_of_v1beta1_is_one_error(tag: str) -> None:
    worker = component("vllm", "--model", "Qwen/Qwen3-0.6B", version=tag)
    text = deployment(worker | {"type": "workers"}, version=tag)
    assert [f.rule for f in errors(text) if f.rule in OF_CRD] == ["PS004"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"labels": {"a": True}},
            'PS779 spec.services.Worker.labels.a must be a string, got true. Quote it: "true"',
        ),
        (
            {"multinode": {"nodeCount": 1}},
            "PS779 spec.services.Worker.multinode.nodeCount is 1; the minimum is 2. Use at least "
            "2.",
        ),
        (
            {"checkpoint": {"enabled": "yes"}},
            "PS779 spec.services.Worker.checkpoint.enabled must be true or false, got 'yes'. Write "
            "true or false.",
        ),
        (
            {"checkpoint": {"mode": "auto"}},
            "PS779 spec.services.Worker.checkpoint.mode is 'auto', which is not one of Auto, "
            "Manual. Use Auto.",
        ),
        (
            {"modelRef": {"revision": "main"}},
            "PS779 spec.services.Worker.modelRef has no name. Add name.",
        ),
        (
            {"topologyConstraint": {"packDomain": "Rack"}},
            "PS779 spec.services.Worker.topologyConstraint.packDomain is 'Rack', which does not "
            "match the pattern ^[a-z0-9]([a-z0-9-]*[a-z0-9])?$. Write a value that matches the "
            "pattern.",
        ),
        (
            {"livenessProbe": {"periodSeconds": "5"}},
            "PS779 spec.services.Worker.livenessProbe.periodSeconds must be an integer, got '5'. "
            "Write 5, without quotes.",
        ),
        (
            {"resources": {"limits": {"gpu": "2"}, "claims": {"name": "gpu"}}},
            "PS779 spec.services.Worker.resources.claims must be a list, got {'name': 'gpu'}. "
            "Write a list, each item after `- `.",
        ),
    ],
)
def test_a_value_is_described_with_its_place_and_what_is_possible(
    changes: dict[str, Any], message: str
) -> None:
    found = [text for text in messages(alpha(changes)) if text.startswith("PS779")]
    assert found == [message]


def test_an_invalid_value_hides_no_other_slip_of_its_component() -> None:
    text = alpha({"replicas": "one", "replica": 1, "labels": {"a": 1}})
    assert [f.rule for f in errors(text)] == ["PS004", "PS768", "PS779"]


@pytest.mark.parametrize(
    ("path", "value", "rule"),
    [("runtimeVersionOverride", "1.6", "PS902"), ("sharedMemorySize", "80GB", "PS732")],
)
def test_a_more_precise_rule_reports_a_value_alone(path: str, value: str, rule: str) -> None:
    text = vllm_agg_dgd({f"{WORKER}/{path}": value})
    assert [f.rule for f in errors(text) if f.place.endswith(path)] == [rule]


def test_a_field_of_later_operators_names_the_first_of_them() -> None:
    text = vllm_agg_dgd({f"{WORKER}/minAvailable": 1})
    assert not [f for f in errors(text) if f.rule == "PS768"]
    assert messages(text, "1.2.1") == [
        "PS768 'minAvailable' is not a field of spec.components[1] in operator 1.2. Remove it, or "
        "use operator 1.3 or later, which has it."
    ]


def test_an_operator_without_the_api_version_is_an_error() -> None:
    (finding,) = [f for f in errors(vllm_agg_dgd(), "1.1.1") if f.rule == "PS779"]
    assert finding.place == "apiVersion"
    assert finding.fix == "Use nvidia.com/v1alpha1, or operator 1.2 or later."
    assert errors(vllm_agg_dgd(), "1.2") == []


def test_what_the_webhook_refuses_depends_on_the_operator_and_not_on_the_image() -> None:
    strategy = {"annotations": {"nvidia.com/deployment-strategy": "Blue"}}
    text = alpha(strategy, image=f"{IMAGE}:0.9.0")
    assert "PS756" in [f.rule for f in errors(text)]
    assert "PS756" not in [f.rule for f in errors(text, "1.4")]


@pytest.mark.parametrize(
    ("field", "value", "level"),
    [
        ("componentType", "reranker", Level.WARNING),  # it runs a worker of Dynamo
        ("componentType", "main", None),
        ("subComponentType", "encode", None),
        ("subComponentType", "draft", Level.NOTE),
    ],
)
def test_a_type_that_is_no_slip_is_less_than_an_error(
    field: str, value: str, level: Level | None
) -> None:
    findings = check(alpha({field: value}), only="PS786")
    assert [f.level for f in findings] == ([level] if level else [])


def test_a_component_of_ones_own_without_dynamo_is_a_note() -> None:
    text = alpha({"componentType": "gateway"}, command=["nginx"])
    assert [f.level for f in check(text, only="PS786")] == [Level.NOTE]


def test_the_option_selects_the_operator(tmp_path: Path) -> None:
    file = tmp_path / "dgd.yaml"
    file.write_text(vllm_agg_dgd({f"{WORKER}/minAvailable": 1}), "utf-8")
    found = {}
    for version in ("1.2.1", "1.6", "9.0"):
        ran = penstock("check", "--json", "--operator-version", version, str(file))
        found[version] = "PS768" in ran.stdout
    assert found == {"1.2.1": True, "1.6": False, "9.0": False}


@pytest.mark.parametrize(("version", "newer"), [("1.6.2", 0), ("1.7", 1), ("1.9", 1)])
def test_an_operator_newer_than_the_known_crds_is_one_warning(version: str, newer: int) -> None:
    findings = check(vllm_agg_dgd(), only="PS910", operator=version)
    assert [(f.level, f.message, f.place) for f in findings] == newer * [
        (
            Level.WARNING,
            f"the operator is {version}, whose CRD penstock does not know; it is judged as 1.6",
            "apiVersion",
        )
    ]


@pytest.mark.parametrize(
    ("operator", "fix"),
    [
        ("1.0", "Update the operator to 1.2 or later. Then use nvidia.com/v1beta1"),
        ("1.2", "Use nvidia.com/v1beta1"),
    ],
)
def test_the_advice_on_the_api_version_is_possible_under_the_operator(
    operator: str, fix: str
) -> None:
    (finding,) = check(alpha({}), only="PS907", operator=operator)
    assert finding.fix == f"{fix} with spec.components and podTemplate."


@pytest.mark.parametrize("rule", ["PS716", "PS757"])
def test_rules_about_the_operator_state_its_versions(rule: str) -> None:
    assert by_id(rule).versions.text() == "Dynamo operator since 1.0"


@pytest.mark.parametrize("version", ["0.9.1", "latest", "abc", "1", ""])
def test_an_operator_whose_crd_is_unknown_is_a_usage_error(version: str) -> None:
    ran = penstock("check", "--operator-version", version, "x.yaml")
    assert ran.returncode == 2
    assert "Use 1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6 or" in " ".join(ran.stderr.split())


def test_each_stored_release_has_the_fields_that_it_added() -> None:
    assert stored_releases() == ("1.0", "1.1", "1.2", "1.3", "1.4", "1.5", "1.6")
    first = {}
    for release in stored_releases():
        for version, spec in stored(release).items():
            parts = spec["properties"].get("components") or spec["properties"]["services"]
            items = parts.get("items") or parts["additionalProperties"]
            for field in items["properties"]:
                first.setdefault((version[-6:], field), release)
    since = {field: release for (version, field), release in first.items() if version == "1beta1"}
    assert since["podTemplate"] == "1.2"
    assert since["minAvailable"] == "1.3"
    assert since["runtimeVersionOverride"] == "1.4"
    assert since["providerOverride"] == "1.5"
    assert since["dynamoSidecar"] == "1.6"


REFUSED = ("in body should be", "Unsupported value", "typed patch object", "strict decoding error")
# What the server refused and a schema does not say: keys of lists, and other versions.
NOT_OF_SCHEMA = ("duplicate entries", "associative list", "denied the request")


def created() -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    path = recordings() / "errors" / "422-dynamographdeployment.json"
    return [
        (one["what"], one["request"]["body"], one["response"])
        for one in json.loads(path.read_text("utf-8"))
        if one["request"].get("body", {}).get("kind") == "DynamoGraphDeployment"
        and "update" not in one["what"]
        and "status" not in one["what"]
    ]


@pytest.mark.needs("recordings")
def test_recorded_refusals_by_the_schema_are_errors_and_accepted_objects_are_not() -> None:
    refused, accepted = 0, 0
    for what, body, response in created():
        message = response["body"].get("message") or ""
        rules = {f.rule for f in errors(yaml.safe_dump(body))} & set(OF_CRD)
        if any(part in message for part in REFUSED) and not any(
            part in message for part in NOT_OF_SCHEMA
        ):
            assert rules, what
            refused += 1
        elif response["status"] in (200, 201) and "an unknown field" not in what:
            assert not rules & {"PS768", "PS779"}, what
            accepted += 1
    assert (refused, accepted) == (8, 4)


@pytest.mark.needs("crds")
def test_the_stored_schemas_of_1_5_are_those_of_the_crd(capsys: pytest.CaptureFixture[str]) -> None:
    dump_dgd_fields.main({"1.5": CRD})
    data = json.loads(capsys.readouterr().out)
    assert resolved(data)["1.5"] == stored("1.5")


VALUES = (5, "text", True, [], {"a": 1}, -1, "Bad Value!", REMOVED)


def places(value: Any, path: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    """The path of each value below ``path``, of lists only of the first item."""
    inner = value.items() if isinstance(value, dict) else ()
    for step, item in inner if not isinstance(value, list) else list(enumerate(value))[:1]:
        yield (*path, step)
        yield from places(item, (*path, step))


def reported(document: dict[str, Any]) -> set[str]:
    specs = stored("1.5")
    unknown = {place_of(field.path) for field in unknown_fields(document, specs)}
    return unknown | {
        place_of((*bad.path, bad.limit) if bad.keyword == "required" else bad.path)
        for bad in bad_values(document, specs)
    }


@pytest.mark.needs("crds", "recipes")
@pytest.mark.parametrize(
    "name",
    ["deploy_operator_samples_dgd-gms-failover.yaml", "recipes_llama-3-70b_vllm_agg_deploy.yaml"],
)
def test_a_changed_recipe_is_judged_as_by_the_whole_crd(name: str) -> None:
    """The validator of the tests reads the CRD itself, and gives keys with dots in brackets."""
    versions = crd.versions(CRD)
    changed = 0
    for document in recipe(name):
        for number, path in enumerate(places(document["spec"], ("spec",))):
            if any("." in str(step) for step in path):
                continue
            steps = "/".join(str(step).replace("/", "~1") for step in path)
            broken = edited(document, {steps: VALUES[number % len(VALUES)]})
            found = versions[document["apiVersion"]].problems(broken)
            expected = {place for place, message in found if "is required when" not in message}
            assert reported(broken) == expected, steps
            changed += 1
    assert changed > 20
