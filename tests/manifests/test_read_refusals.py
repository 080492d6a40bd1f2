"""What is no deployment, and what the message says about it."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ManifestError, ProblemKind
from penstock.manifests.read import read_text
from tests.manifests.manifests import (
    FRONTEND,
    alpha,
    beta,
    only_problem,
    problems,
    read_objects,
    worker,
)

VLLM = "command: [python3, -m, dynamo.vllm]\n"


def test_broken_yaml_names_its_line() -> None:
    problem = only_problem("a: 1\nb: [1, 2\nc: 3\n")
    assert problem.line == 3
    assert problem.message.startswith("not valid YAML at column ")


@pytest.mark.parametrize("text", ["", "\n", "# only a comment\n", "---\n---\n"])
def test_an_empty_file_is_reported(text: str) -> None:
    assert only_problem(text).message == "the file is empty"


def test_the_content_of_a_crd_is_not_read_and_lines_stay() -> None:
    """The DGD's own CRD has 1.6 MB."""
    crd = "kind: CustomResourceDefinition\nspec: {a: 1, a: 2}\nx: " + "y" * 3_000_000 + "\n---\n"
    assert problems(crd)[0].message.endswith("CustomResourceDefinition")
    broken = beta(FRONTEND).replace("metadata: {name: g}", "metadata: {}")
    assert [only_problem(text).line for text in (broken, crd + broken)] == [3, 7]


def test_of_a_duplicate_key_the_last_value_is_read_as_kubectl_does() -> None:
    text = beta(FRONTEND).replace("metadata: {name: g}", "metadata:\n  name: g\n  name: h")
    (deployment,) = read_text(text, "f.yaml")
    assert deployment.name == "h"


@pytest.mark.parametrize(
    ("first", "last", "is_lost"),
    [
        ("", "2", False),
        ("{}", "{a: 1}", False),
        ("2", "2", False),
        ("2", "", True),
        ("1", "true", True),
        ("{a: 1}", "{b: 1}", True),
    ],
)
def test_a_duplicate_key_of_an_engine_file_is_a_problem_only_if_a_value_is_lost(
    first: str, last: str, is_lost: bool
) -> None:
    container = """
        command: [python3, -m, dynamo.trtllm, --extra-engine-args, /c/e.yaml]
        volumeMounts: [{name: c, mountPath: /c}]
        """
    pod = "volumes: [{name: c, configMap: {name: cm}}]\n"
    twice = f"b: {first}\n        b: {last}"
    reported = problems(beta(worker(container, pod=pod), more=CONFIG % twice))
    kinds = [problem.kind for problem in reported]
    assert kinds == ([ProblemKind.REPEATED] if is_lost else [])


def test_a_document_that_is_not_a_mapping_is_refused() -> None:
    assert "must be a mapping" in problems("- a\n- b\n")[0].message
    assert "must be a mapping" in problems(beta(FRONTEND) + "---\njust text\n")[0].message


def test_a_file_without_a_deployment_is_reported_with_its_kinds() -> None:
    text = "kind: Job\n---\nkind: Service\n---\nkind: Service\n"
    assert (
        only_problem(text).message
        == "the file contains no DynamoGraphDeployment, only: Job, Service"
    )


@pytest.mark.parametrize("version", ["nvidia.com/v1", "v1", "apps/v1"])
def test_an_unknown_version_is_refused(version: str) -> None:
    problem = only_problem(beta(FRONTEND).replace("nvidia.com/v1beta1", version))
    assert problem.message == f"unknown apiVersion {version}"
    assert problem.line == 1


def test_a_missing_name_is_refused() -> None:
    problem = only_problem(beta(FRONTEND).replace("metadata: {name: g}", "metadata: {}"))
    assert (problem.message, problem.line) == ("no metadata.name", 3)


def test_a_graph_without_components_is_refused() -> None:
    head = beta(FRONTEND).partition("spec:")[0]
    assert only_problem(head + "spec: {}\n").message == "no components"
    fix = only_problem(head + "spec: {services: {a: {}}}\n").fix
    assert "spec.services belongs to the other version" in fix


def test_a_component_needs_its_main_container_with_an_image() -> None:
    no_main = beta("- {name: a, podTemplate: {spec: {containers: [{name: x, image: i}]}}}")
    assert only_problem(no_main).message.endswith("has no container `main`")
    no_image = beta("- {name: a, podTemplate: {spec: {containers: [{name: main, command: [x]}]}}}")
    assert only_problem(no_image).message == "no image"


def test_the_fix_mentions_kustomize_patches() -> None:
    reported = problems(alpha("Worker: {replicas: 2}\nOther: {replicas: 3}"))
    assert [p.place for p in reported] == ["spec.services.Worker", "spec.services.Other"]
    assert all("a Kustomize patch" in p.fix for p in reported)


def test_component_names_differ_by_more_than_case() -> None:
    twice = FRONTEND + FRONTEND.replace("Frontend", "FRONTEND")
    assert only_problem(beta(twice)).message == "duplicate component name FRONTEND"


def test_a_worker_without_a_command_is_refused() -> None:
    problem = only_problem(beta(worker("")))
    assert problem.message == (
        "no command and no args: the operator runs /bin/sh -c without a script, so the container "
        "exits"
    )


def test_a_script_that_starts_nothing_is_refused() -> None:
    problem = only_problem(beta(worker("command: [bash, -c, 'mkdir /x']\n")))
    assert problem.message == "command and args start no process that penstock can find"


def test_a_script_that_no_shell_can_read_is_refused() -> None:
    problem = only_problem(beta(worker("command: [bash, -c, 'if true; then x']\n")))
    assert "(`fi` expected, found `the end`)" in problem.message


@pytest.mark.parametrize("field", ["replicas: '2'", "replicas: -1", "replicas: true"])
def test_replicas_must_be_an_integer(field: str) -> None:
    problem = only_problem(beta(worker(VLLM, more=field + "\n")))
    assert problem.place == "spec.components[0].replicas"


def test_numbers_in_arguments_need_quotes() -> None:
    problem = only_problem(beta(worker(VLLM + "args: [--port, 8000]\n")))
    assert problem.fix == 'Quote it: "8000"'
    assert problem.place.endswith("args[1]")


@pytest.mark.parametrize(
    "value",
    ["${IMAGE}", "<your-registry>/x:1", "reg/x:<IMAGE_TAG>", "REPLACE_ME", "'{{ .Values.image }}'"],
)
def test_an_unfilled_placeholder_is_refused_except_in_images(value: str) -> None:
    quoted = value if value[0] == "'" else f'"{value}"'
    problem = only_problem(beta(worker(VLLM, more=f"podTemplateName: {quoted}\n")))
    assert problem.message.endswith("is an unfilled placeholder")
    assert problem.place.endswith("podTemplateName")
    assert problems(beta(FRONTEND.replace("a/frontend:1", quoted))) == ()


@pytest.mark.parametrize(
    "argument", ["${MODEL}", "<think>", '{"a": {"b": 1}}', "$(X)", "{{ messages }}", "a < b > c"]
)
def test_syntax_of_programs_and_shells_is_not_a_placeholder(argument: str) -> None:
    assert problems(beta(worker(VLLM + f"args: ['{argument}']\n"))) == ()
    assert problems(beta(worker(VLLM + f"env: [{{name: A, value: '{argument}'}}]\n"))) == ()


@pytest.mark.parametrize("argument", ["<your-model>", "REPLACE_ME", "{{ .Values.model }}"])
def test_placeholders_in_arguments_are_found_too(argument: str) -> None:
    assert len(problems(beta(worker(VLLM + f"args: ['{argument}']\n")))) == 1


def test_an_unrendered_template_is_reported() -> None:
    text = beta(worker(VLLM, more="replicas: {{ .Values.replicas }}\n"))
    assert any("template" in problem.message for problem in problems(text))


def test_all_problems_come_at_once_in_the_order_of_lines() -> None:
    text = beta(
        worker(VLLM + "args: [1]\n", more="replicas: x\n") + "- {podTemplate: {}}\n" + FRONTEND
    ).replace("metadata: {name: g}", "metadata: {}")
    reported = problems(text)
    assert [p.line for p in reported] == sorted(p.line or 0 for p in reported)
    assert len(reported) == 4


CONFIG = """
    apiVersion: v1
    kind: ConfigMap
    metadata: {name: cm}
    data:
      e.yaml: |
        a: 1
        %s
    """


@pytest.mark.parametrize(
    ("line", "message"),
    [("b: [1", "not valid YAML"), ("a: 2", "duplicate key"), ("- x", "not valid YAML")],
)
def test_a_broken_engine_file_names_the_line_in_the_manifest(line: str, message: str) -> None:
    container = """
        command: [python3, -m, dynamo.trtllm, --extra-engine-args, /c/e.yaml]
        volumeMounts: [{name: c, mountPath: /c}]
        """
    pod = "volumes: [{name: c, configMap: {name: cm}}]\n"
    text = beta(worker(container, pod=pod), more=CONFIG % line)
    (problem, *_) = problems(text)
    assert message in problem.message
    assert problem.place == "data.e.yaml"
    where = next(n for n, written in enumerate(text.splitlines(), 1) if written.strip() == line)
    assert problem.line in (where, where + 1)


def test_an_item_of_a_volume_that_is_not_there_is_refused() -> None:
    container = VLLM + "volumeMounts: [{name: c, mountPath: /c}]\n"
    pod = "volumes: [{name: c, configMap: {name: cm, items: [{key: nope, path: x}]}}]\n"
    problem = only_problem(beta(worker(container, pod=pod), more=CONFIG % ""))
    assert problem.message == "the ConfigMap cm has no key 'nope'"


def test_an_alias_within_its_own_anchor_is_reported() -> None:
    text = beta(worker(VLLM)).replace("spec:\n  components", "spec: &s\n  again: *s\n  components")
    assert any("alias" in problem.message for problem in problems(text))


def test_nested_aliases_take_no_extra_memory() -> None:
    levels = "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30))
    problem = only_problem(f"a0: &a0 x\n{levels}\nkind: Pod\n")
    assert problem.message == "*a4: the aliases of the file stand for more than 20,000 values"
    assert problem.line == 6


KEYS = """
spec services components podTemplate containers env args command image name metadata kind apiVersion
replicas resources limits volumes configMap data extraPodSpec mainContainer multinode type envFrom
"""
_yaml = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(KEYS.split()),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=20,
)


@given(spec=_yaml, version=st.sampled_from(["nvidia.com/v1beta1", "nvidia.com/v1alpha1"]))
def test_any_object_is_read_or_refused(spec: object, version: str) -> None:
    graph = {"apiVersion": version, "kind": "DynamoGraphDeployment", "metadata": {"name": "g"}}
    for objects in ([graph | {"spec": spec}], [spec], [{"kind": "ConfigMap", "data": spec}, graph]):
        with contextlib.suppress(ManifestError):
            read_objects(objects, "f")


@given(script=st.text("abc$(){}[]\"'`;&|<>\\ \n#!=*-0123", max_size=40))
def test_any_script_is_read_or_refused(script: str) -> None:
    component = {
        "name": "w",
        "type": "worker",
        "podTemplate": {
            "spec": {"containers": [{"name": "main", "image": "i", "args": ["sh", "-c", script]}]}
        },
    }
    graph = {
        "apiVersion": "nvidia.com/v1beta1",
        "kind": "DynamoGraphDeployment",
        "metadata": {"name": "g"},
        "spec": {"components": [component]},
    }
    with contextlib.suppress(ManifestError):
        read_objects([graph], "f")


@given(text=st.text("ab:-[]{}&*!|>'\"#%@ \n\t", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    with pytest.raises(ManifestError):
        read_text(text, "f")
