"""Fixes and places that the review of the ninth sample of published manifests called wrong."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.checks.finding import Finding
from tests.checks.own_manifests import alpha, claim
from tests.checks.support import TRTLLM_DISAGG, VLLM_AGG, check, dump, fired, graph, manifest

MAIN = "dgd/spec/components/worker/podTemplate/spec/containers/main"
NVIDIA = "nvcr.io/nvidia/ai-dynamo"
VLLM = ["-m", "dynamo.vllm", "--model", "openai/gpt-oss-120b"]


def only(text: str, rule: str) -> Finding:
    (finding,) = [finding for finding in check(text) if finding.rule == rule and finding.line]
    return finding


@pytest.mark.parametrize(
    ("rule", "command", "args", "fix"),
    [
        (
            "PS771",
            ["/bin/sh", "-c"],
            ["python3", *VLLM],
            "Replace `/bin/sh -c` with python3 in command, and remove python3 from args.",
        ),
        (
            "PS771",
            ["/bin/sh", "-c", "python3"],
            VLLM,
            "Replace `/bin/sh -c` with python3 in command, so that it gets the arguments.",
        ),
        (
            "PS769",
            ["python3"],
            ["python3 -m dynamo.vllm"],
            "Write each word after python3 as an entry of args; no shell splits it.",
        ),
        (
            "PS769",
            ["python3"],
            ["python3", *VLLM],
            "Remove python3 from args, as the command python3 is the interpreter.",
        ),
    ],
)
def test_the_fixed_command_names_python_once(
    rule: str, command: list[str], args: list[str], fix: str
) -> None:
    text = manifest(VLLM_AGG, {f"{MAIN}/command": command, f"{MAIN}/args": args})
    assert only(text, rule).fix == fix


def test_an_amount_that_is_text_in_the_crd() -> None:
    finding = only(alpha({"resources": {"limits": {"gpu": "2", "cpu": "6-10"}}}), "PS732")
    assert finding.fix == "Write an amount such as 500m or 4."
    assert "API server accepts" in finding.why
    of_container = only(alpha({}, resources={"limits": {"memory": "6-10Gi"}}), "PS732")
    assert of_container.fix == "Write an amount such as 64Gi."
    assert "API server rejects" in of_container.why


def test_a_topology_of_v1alpha1_has_a_profile() -> None:
    finding = only(alpha({"topologyConstraint": {"packDomain": "rack"}}), "PS776")
    assert finding.fix == "Set spec.topologyConstraint with topologyProfile."


def test_the_type_of_an_endpoint_picker() -> None:
    config = {"eppConfig": {"configMapRef": {"name": "epp", "key": "epp.yaml"}}}
    fix = "Set the componentType to epp, or move eppConfig to the endpoint picker."
    assert only(alpha({**config, "componentType": "planner"}), "PS778").fix == fix
    assert fired(alpha({**config, "componentType": "Epp"})) >= {"PS786"}
    assert "PS778" not in fired(alpha({**config, "componentType": "Epp"}))


@pytest.mark.parametrize(
    ("worker", "image", "fix"),
    [
        ({}, "dynamo-vllm", "Use vllm-runtime."),
        ({"componentType": "epp"}, "epp-images", "Use dynamo-frontend."),
        ({"componentType": "epp"}, "frontend-image", "Use dynamo-frontend."),
        ({"componentType": "frontend"}, "dynamo-base", "Use dynamo-frontend."),
    ],
)
def test_the_image_of_the_engine_replaces_one_that_does_not_exist(
    worker: dict[str, Any], image: str, fix: str
) -> None:
    command = {} if not worker else {"command": ["python3", "-m", "dynamo.frontend"]}
    text = alpha(worker, image=f"{NVIDIA}/{image}:1.6.1", **command)
    assert only(text, "PS783").fix == fix


@pytest.mark.parametrize(
    ("page", "image"),
    [
        ("https://hub.docker.com/r/intel/ai-dynamo-xpu:v1", "docker.io/intel/ai-dynamo-xpu:v1"),
        ("https://hub.docker.com/_/python:3.12", "docker.io/library/python:3.12"),
        ("https://quay.io/repository/team/vllm:1.0.0", "quay.io/team/vllm:1.0.0"),
        (
            "https://catalog.ngc.nvidia.com/orgs/nvidia/teams/ai-dynamo/containers/vllm-runtime",
            f"{NVIDIA}/vllm-runtime",
        ),
        ("https://registry.example/vllm:1.0.0", "registry.example/vllm:1.0.0"),
    ],
)
def test_the_page_of_an_image_is_not_its_name(page: str, image: str) -> None:
    assert only(alpha({}, image=page), "PS784").fix == f"Write `{image}`."


def test_a_missing_separator_is_reported_once() -> None:
    graph = alpha({})
    volume = dump(claim("ReadWriteMany"))
    finding = only(volume + graph, "PS009")
    begin = len(volume.splitlines()) + 1
    assert (finding.line, finding.fix) == (begin, f"Insert `---` before line {begin}.")
    assert "PS009" not in fired(f"{volume}---\n{graph}")
    repeated = graph.replace("metadata:\n", "metadata:\n  name: other\n", 1)
    assert only(repeated, "PS009").fix.startswith("Copy what is needed")


def test_a_variable_that_is_not_filled_in() -> None:
    text = alpha({}).replace("mainContainer:\n", "mainContainer:${ENVIRONMENT}\n", 1)
    finding = only(text, "PS004")
    assert finding.fix == "Fill in ${ENVIRONMENT}."
    spaceless = alpha({}).replace("mainContainer:\n", "mainContainer:x\n", 1)
    assert only(spaceless, "PS004").fix == "Write a space after `mainContainer:`."


@pytest.mark.parametrize("flag", ["--compilation-config", "--compilation_config"])
@pytest.mark.parametrize("is_script", [False, True])
def test_a_flag_is_found_in_both_spellings(flag: str, is_script: bool) -> None:
    words = ["python3", *VLLM, flag, '{"pass_config":{"enable_noop":true}}']
    launch: dict[str, list[str]] = {f"{MAIN}/command": words, f"{MAIN}/args": []}
    if is_script:
        script = "\n".join((" ".join(words[:-2]) + " \\", f"  {flag} '{words[-1]}'\n"))
        launch = {f"{MAIN}/command": ["bash", "-c"], f"{MAIN}/args": [script]}
    text = manifest(VLLM_AGG, launch)
    line = next(n for n, line in enumerate(text.splitlines(), 1) if flag in line)
    assert only(text, "PS155").line == line


def test_a_flag_with_an_equals_sign_is_found_in_a_script() -> None:
    flag = "--compilation_config.pass_config.enable_noop=true"
    script = f"python3 {' '.join(VLLM)} \\\n  {flag}\n"
    text = manifest(VLLM_AGG, {f"{MAIN}/command": ["bash", "-c"], f"{MAIN}/args": [script]})
    line = next(n for n, line in enumerate(text.splitlines(), 1) if flag in line)
    assert only(text, "PS155").line == line


@pytest.mark.parametrize(("tag", "is_reported"), [("dev.1", True), ("dev.2", False)])
def test_a_build_for_a_model_may_have_a_newer_engine(tag: str, is_reported: bool) -> None:
    launch = ["python3", *VLLM, "--attention-config", '{"use_fp4_indexer_cache":true}']
    image = f"{NVIDIA}/vllm-runtime:1.2.0-deepseek-v4-cuda13-{tag}"
    assert ("PS169" in fired(alpha({}, command=launch, image=image))) is is_reported


@pytest.mark.parametrize(("tag", "is_reported"), [("0.5.0", False), ("0.5.1", True)])
def test_the_first_names_of_the_transfer_backends(tag: str, is_reported: bool) -> None:
    key = "engine/config/cache_transceiver_config/backend"
    image = f"{NVIDIA}/tensorrtllm-runtime:{tag}"
    text = graph(TRTLLM_DISAGG, {key: "default", "engine/image": image})
    assert ("PS102" in fired(text)) is is_reported
