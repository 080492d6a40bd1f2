"""A planted credential: nothing that is written, recorded or printed contains it."""

from __future__ import annotations

import base64
import json

import helm_python
import pytest

from penstock.cluster.compare import without_secrets
from tests.support.emulated_cluster.released import NAME, Cluster, record_of

PLANTED = "hf_plantedPlanted0123456789"


def plant(cluster: Cluster) -> None:
    """In the Secret that the graph names, and in the log of a container that exits."""
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "hf"},
        "data": {"HF_TOKEN": base64.b64encode(PLANTED.encode()).decode()},
        "stringData": {"HF_TOKEN": PLANTED},
    }
    cluster.api.store.write(("v1", "secrets", "default", "hf"), secret)
    cluster.operator.machine.crash_log = lambda args: (
        f"401 for Bearer {PLANTED}" if "--crash" in args else ""
    )
    cluster.edit(model={"token_secret": "hf"})


def test_no_verb_writes_or_prints_it(fresh: Cluster) -> None:
    plant(fresh)
    output = [fresh.apply()[1]]
    fresh.edit(decode={"args": ["--crash"]})
    output += [fresh.run("diff")[1], fresh.run("diff", "--json")[1]]
    output += [fresh.apply("--skip-check")[1]]
    assert "401 for Bearer (hidden)" in output[-1]
    output += [fresh.run("status", "--cluster")[1], fresh.run("status", "--cluster", "--json")[1]]
    output += [fresh.run("history", "--json")[1], fresh.run("rollback", "--yes")[1]]
    assert PLANTED not in "".join(output)
    with helm_python.Config(kubeconfig_path=fresh.kubeconfig, namespace="default") as config:
        assert PLANTED not in json.dumps(dict(config.get_values(NAME, all_values=True)))
        assert PLANTED not in str(config.status(NAME)["manifest"])
    records = 0
    for key, secret in fresh.api.store.objects.items():
        if key[1] == "secrets" and key[3].startswith("sh.helm.release"):
            assert PLANTED not in json.dumps(record_of(secret))
            records += 1
        elif key[3] != "hf":
            assert PLANTED not in json.dumps(secret)
    assert records == 3


def test_a_graph_that_contains_it_is_rejected_before_any_write(fresh: Cluster) -> None:
    fresh.edit(decode={"env": {"HF_TOKEN": PLANTED}})
    output = fresh.expect(14, "apply", "--yes")
    assert "PS710" in output
    assert "Remove HF_TOKEN here and reference a Secret" in output
    assert PLANTED not in output
    assert fresh.api.requests == []


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        (f"token={PLANTED}!", "token=(hidden)!"),
        ("Authorization: Bearer abc.def", "Authorization: Bearer (hidden)"),
        ("sk-0123456789abcdef", "(hidden)"),
        ("key nvapi-0123456789abcdef.", "key (hidden)"),
        (
            "connecting with password=hunter2, retrying",
            "connecting with password=(hidden), retrying",
        ),
        ('{"api_key": "abcd", "n": 1}', '{"api_key": "(hidden)", "n": 1}'),
        ("vllm serve m --api-key abcd --port 1", "vllm serve m --api-key (hidden) --port 1"),
        ("MINIO_SECRET_KEY: abcd", "MINIO_SECRET_KEY: (hidden)"),
        (
            'volume "my-secret" : secret "hf" not found',
            'volume "my-secret" : secret "hf" not found',
        ),
        ('secret "hf-token" not found', 'secret "hf-token" not found'),
        (
            "couldn't find key TOKEN in Secret default/hf",
            "couldn't find key TOKEN in Secret default/hf",
        ),
        ("max_tokens=4096 secrets is forbidden", "max_tokens=4096 secrets is forbidden"),
        ("HUGGING_FACE_HUB_TOKEN=abcdef", "HUGGING_FACE_HUB_TOKEN=(hidden)"),
        ('password="a b" n=1', 'password="(hidden)" n=1'),
        (r"{\"api_key\": \"abc\"}", r"{\"api_key\": \"(hidden)\"}"),
        ("password:\nTraceback", "password:\nTraceback"),
        ("Secret: not found", "Secret: not found"),
        ("risk-averse hf_ and shelf_life", "risk-averse hf_ and shelf_life"),
    ],
)
def test_text_that_looks_like_a_credential_is_hidden(text: str, printed: str) -> None:
    assert without_secrets(text) == printed


def test_a_long_word_is_searched_in_linear_time() -> None:
    """A container may print anything. In quadratic time this would take hours."""
    text = "a-" * 100_000
    assert without_secrets(text) == text
