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


CONFIG = """
    apiVersion: v1
    kind: ConfigMap
    metadata: {name: cm}
    data:
      e.yaml: |
        a: 1
        %s
    """

HEAD = beta(FRONTEND).partition("spec:")[0]
CONTAINERS = "- {name: a, podTemplate: {spec: {containers: [%s]}}}"
NESTED = "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30))
MOUNT = VLLM + "volumeMounts: [{name: c, mountPath: /c}]\n"
ITEM = "volumes: [{name: c, configMap: {name: cm, items: [{key: nope, path: x}]}}]\n"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a: 1\nb: [1, 2\nc: 3\n", ["f.yaml:3: not valid YAML at column "]),
        *((text, ["the file is empty"]) for text in ("", "\n", "# only a comment\n", "---\n---\n")),
        (
            "kind: Job\n---\nkind: Service\n---\nkind: Service\n",
            ["the file contains no DynamoGraphDeployment, only: Job, Service."],
        ),
        *(
            (
                beta(FRONTEND).replace("nvidia.com/v1beta1", v),
                [f":1 apiVersion: unknown apiVersion {v}."],
            )
            for v in ("nvidia.com/v1", "v1", "apps/v1")
        ),
        (beta(FRONTEND).replace("{name: g}", "{}"), [":3 metadata: no metadata.name."]),
        (HEAD + "spec: {}\n", ["spec: no components."]),
        (HEAD + "spec: {services: {a: {}}}\n", ["spec.services belongs to the other version"]),
        (beta(CONTAINERS % "{name: x, image: i}"), ["has no container `main`."]),
        (beta(CONTAINERS % "{name: main, command: [x]}"), [": no image."]),
        (
            beta(FRONTEND + FRONTEND.replace("Frontend", "FRONTEND")),
            ["duplicate component name FRONTEND."],
        ),
        (
            beta(worker("")),
            ["no command and no args: the operator runs /bin/sh -c without a script, so the "],
        ),
        (
            beta(worker("command: [bash, -c, 'mkdir /x']\n")),
            ["command and args start no process that penstock can find."],
        ),
        (
            beta(worker("command: [bash, -c, 'if true; then x']\n")),
            ["(`fi` expected, found `the end`)"],
        ),
        *(
            (
                beta(worker(VLLM, more=f"replicas: {count}\n")),
                [" spec.components[0].replicas: must be "],
            )
            for count in ("'2'", "-1", "true")
        ),
        (beta(worker(VLLM + "args: [--port, 8000]\n")), ["args[1]: ", 'Fix: Quote it: "8000"']),
        *(
            (beta(worker(VLLM + f"args: ['{text}']\n")), ["is an unfilled placeholder"])
            for text in ("<your-model>", "REPLACE_ME", "{{ .Values.model }}")
        ),
        (beta(worker(MOUNT, pod=ITEM), more=CONFIG % ""), ["the ConfigMap cm has no key 'nope'."]),
        (
            f"a0: &a0 x\n{NESTED}\nkind: Pod\n",
            [":6: *a4: the aliases of the file stand for more than 20,000 values"],
        ),
    ],
)
def test_a_manifest_with_one_problem_is_refused(text: str, parts: list[str]) -> None:
    problem = str(only_problem(text))
    assert all(part in problem for part in parts), problem


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


def test_the_fix_mentions_kustomize_patches() -> None:
    reported = problems(alpha("Worker: {replicas: 2}\nOther: {replicas: 3}"))
    assert [p.place for p in reported] == ["spec.services.Worker", "spec.services.Other"]
    assert all("a Kustomize patch" in p.fix for p in reported)


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


def test_an_alias_within_its_own_anchor_is_reported() -> None:
    text = beta(worker(VLLM)).replace("spec:\n  components", "spec: &s\n  again: *s\n  components")
    assert any("alias" in problem.message for problem in problems(text))


KEYS = """
spec services components podTemplate containers env args command image name metadata kind apiVersion
replicas resources limits volumes configMap data extraPodSpec mainContainer multinode type envFrom
"""
_yaml = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(KEYS.split()), inner, max_size=4),
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
