"""The environment of a process: order, expansion, and what only the cluster knows."""

from __future__ import annotations

import textwrap

import pytest

from penstock.manifests.deployment import Launch
from penstock.manifests.environment import expand
from tests.manifests.manifests import alpha, beta, first, only_problem, worker

CONFIG = """
    apiVersion: v1
    kind: ConfigMap
    metadata: {name: cm}
    data: {A: from-map, B: map-b, not-a-name: "1"}
    """


def launch(container: str, *, spec: str = "", more: str = "") -> Launch:
    command = "command: [python3, -m, dynamo.vllm]\n"
    container = textwrap.dedent(container).lstrip("\n")
    return first(beta(worker(command + container), spec=spec, more=more)).launches[0]


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("a $(A) b", "a 1 b"),
        ("$(A)$(B)", "1$(B)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$$$$(A)", "$$(A)"),
        ("$A ${A} $", "$A ${A} $"),
        ("$(A", "$(A"),
        ("$()", "$()"),
        ("$(echo $(A))", "$(echo $(A))"),
        ("awk '{print $$1}'", "awk '{print $1}'"),
        ("x$", "x$"),
        ("$)$(A)", "$)1"),
    ],
)
def test_references_expand_as_the_kubelet_does(text: str, expanded: str) -> None:
    assert expand(text, {"A": "1"}.get) == expanded


def test_later_sources_take_precedence() -> None:
    text = alpha(
        """
        W:
          componentType: worker
          envs: [{name: B, value: service}, {name: C, value: service}]
          extraPodSpec:
            mainContainer:
              image: i
              command: [python3, -m, dynamo.vllm]
              envFrom: [{configMapRef: {name: cm}}]
              env: [{name: C, value: container}]
        """,
        spec="envs: [{name: A, value: spec}, {name: B, value: spec}]\n",
        more=CONFIG,
    )
    env = first(text).launches[0].env
    assert env == {"A": "spec", "B": "service", "C": "container", "not-a-name": "1"}


def test_values_refer_to_those_before_them() -> None:
    process = launch(
        "env: [{name: A, value: '$(B)-$(S)'}, {name: B, value: '2'}, {name: C, value: '$(B)'}]\n"
        "args: ['$(C)']\n",
        spec="env: [{name: S, value: s}]\n",
    )
    assert process.env == {"S": "s", "A": "$(B)-s", "B": "2", "C": "2"}
    assert process.argv[-1] == "2"


def test_a_configmap_of_the_file_sets_keys_and_prefixes() -> None:
    process = launch(
        "envFrom: [{prefix: P_, configMapRef: {name: cm}}]\n"
        "env: [{name: K, valueFrom: {configMapKeyRef: {name: cm, key: A}}}]\n",
        more=CONFIG,
    )
    assert (process.env["P_B"], process.env["K"]) == ("map-b", "from-map")


def test_secrets_and_fields_are_noted_and_never_empty() -> None:
    process = launch("""
        envFrom: [{secretRef: {name: token}}]
        env:
        - {name: KEY, valueFrom: {secretKeyRef: {name: other, key: k}}}
        - {name: UID_, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}
        - {name: CPUS, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}
        args: ["--key=$(KEY)"]
        """)
    assert process.env == {}
    assert process.secrets == ("token", "other")
    assert process.argv[-1] == "--key=$(KEY)"
    assert process.unresolved == (
        "$(KEY): a value of the Secret other",
        "KEY: a value of the Secret other",
        "UID_: the pod's metadata.uid",
        "CPUS: the container's limits.cpu",
    )


def test_a_configmap_outside_of_the_file_is_unknown() -> None:
    process = launch("""
        envFrom: [{configMapRef: {name: far}}]
        env: [{name: K, valueFrom: {configMapKeyRef: {name: far, key: k}}}]
        """)
    assert process.env == {}
    assert "the variables of ConfigMap far, which is not in the file" in process.unresolved
    assert "K: k of ConfigMap far, which is not in the file" in process.unresolved


def test_a_missing_key_is_a_problem_unless_optional() -> None:
    reference = "env: [{name: K, valueFrom: {configMapKeyRef: {name: cm, key: nope%s}}}]\n"
    assert launch(reference % ", optional: true", more=CONFIG).env == {}
    text = beta(worker("command: [x]\n" + reference % ""), more=CONFIG)
    problem = only_problem(text)
    assert "has no key 'nope'" in problem.message
    assert problem.fix == "Use one of its keys: A, B, not-a-name."
    assert problem.place.endswith("env[0].valueFrom.configMapKeyRef.key")


def test_a_variable_without_a_value_is_empty() -> None:
    assert launch("env: [{name: A}, {name: B, value: ''}]\n").env == {"A": "", "B": ""}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("true", "got true"),
        ("8000", "got 8000"),
        ("1.5", "got 1.5"),
        ("y", "but Kubernetes reads y as true"),
        ("Off", "but Kubernetes reads Off as false"),
        ("1.10", "but Kubernetes reads 1.10 as 1.1"),
        ("1e3", "but Kubernetes reads 1e3 as 1000.0"),
    ],
)
def test_a_value_that_is_not_a_string_to_kubernetes_is_quoted_as_written(
    value: str, message: str
) -> None:
    text = beta(worker(f"command: [x]\nenv: [{{name: A, value: {value}}}]\n"))
    problem = only_problem(text)
    assert problem.message == f"must be a string, {message}"
    assert problem.fix == f'Quote it: "{value}"'
    assert problem.place.endswith("env[0].value")


def test_a_shell_sees_the_same_environment() -> None:
    process = first(
        beta(
            worker(
                "command: [sh, -c, 'exec python3 -m dynamo.vllm $A $(B) $T']\n"
                "env: [{name: A, value: 1 2}, {name: B, value: b}]\n"
                "envFrom: [{secretRef: {name: s}}]\n"
            )
        )
    ).launches[0]
    assert process.argv[3:] == ("1", "2", "b", "$T")
    assert process.shell
