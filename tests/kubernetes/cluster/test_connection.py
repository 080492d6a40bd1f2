"""Mistakes in the kubeconfig and in the CRDs: one message each with a fix, and nothing written."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
import yaml
from urllib3.exceptions import InsecureRequestWarning

from penstock.cli import main as cli
from penstock.cli.diff import EXIT_CHANGED
from penstock.cluster import connect
from penstock.errors import ClusterError
from tests.kubernetes.cluster.test_recordings import RECORDINGS
from tests.support.emulated_cluster.api_server import ApiServer
from tests.support.emulated_cluster.released import Cluster, certificate
from tests.support.emulated_cluster.store import RESOURCES, ApiError
from tests.support.scripted_http import QuietServer

VERBS = ("diff", "apply", "history", "rollback", "uninstall", "status")
V1BETA1 = "nvidia.com/v1beta1"
ADAPTERS = "dynamographdeploymentscalingadapters"
COMPONENTS = "dynamocomponentdeployments"
GRAPHS = "dynamographdeployments"
Edit = Callable[[dict[str, Any]], None]


def failing(cluster: Cluster, verb: str, *arguments: str) -> str:
    """The message of a verb that fails because of the cluster and writes nothing."""
    options = {"apply": ["--yes"], "uninstall": ["--yes"], "rollback": ["--yes"]}
    options |= {"status": ["--cluster"]}
    before = cluster.api.store.version
    output = cluster.expect(ClusterError, verb, *options.get(verb, ()), *arguments)
    assert cluster.api.store.version == before
    assert "Traceback" not in output
    return output


def edit_kubeconfig(cluster: Cluster, edit: Edit) -> None:
    content = yaml.safe_load(cluster.kubeconfig.read_text())
    edit(content)
    cluster.kubeconfig.write_text(yaml.safe_dump(content))


def behind_proxy(cluster: Cluster, url: str) -> None:
    """Only the proxy, which the emulated server is too, knows the address of the API server."""

    def edit(content: dict[str, Any]) -> None:
        cluster_of_context = content["clusters"][0]["cluster"]
        cluster_of_context |= {"server": "http://api.invalid", "proxy-url": url}

    edit_kubeconfig(cluster, edit)


def test_every_request_goes_through_the_proxy_of_the_kubeconfig(fresh: Cluster) -> None:
    behind_proxy(fresh, fresh.api.url)
    fresh.expect(0, "apply", "--yes")
    assert fresh.run("diff")[0] == 0
    direct = [r for r in fresh.api.requests if not r.split()[1].startswith("http://api.invalid/")]
    assert not direct


def test_the_proxy_of_the_environment_is_used_as_helm_does(
    installed: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a process: Helm's library reads the environment once."""
    behind_proxy(installed, "")
    monkeypatch.setenv("HTTP_PROXY", installed.api.url)
    output, _ = installed.start("history").communicate(timeout=60)
    assert "deployed" in output
    monkeypatch.setenv("NO_PROXY", ".invalid")
    output, _ = installed.start("history").communicate(timeout=60)
    assert "http://api.invalid: the API server does not respond" in output


@pytest.mark.parametrize("verb", VERBS)
def test_a_dead_proxy_is_named(fresh: Cluster, verb: str) -> None:
    behind_proxy(fresh, "http://127.0.0.1:9")
    output = failing(fresh, verb)
    assert "http://api.invalid: cannot be reached through the proxy http://127.0.0.1:9" in output
    assert "Fix: Correct proxy-url of the cluster in the kubeconfig" in output


def test_a_proxy_of_another_protocol_is_refused(fresh: Cluster) -> None:
    behind_proxy(fresh, "socks5://user:hunter2@127.0.0.1:1080")
    output = failing(fresh, "status")
    assert "proxy-url of the kubeconfig: socks5://" in output
    assert "is not supported" in output
    assert "hunter2" not in output


@pytest.mark.parametrize(
    ("server", "exempt", "proxy"),
    [
        ("https://10.1.2.3:6443", "10.0.0.0/8", None),
        ("https://10.1.2.3:6443", "192.168.0.0/16, x", "http://127.0.0.1:9"),
        ("https://api.example.com", ".example.com", None),
        ("https://127.0.0.1:6443", "", None),
        ("https://[::1]:6443", "", None),
        ("https://api.example.org", "", "http://127.0.0.1:9"),
    ],
)
def test_the_environment_is_read_as_kubectl_does(
    monkeypatch: pytest.MonkeyPatch, server: str, exempt: str, proxy: str | None
) -> None:
    for name in ("https_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", exempt)
    assert connect.proxy_of({}, server) == proxy


@pytest.mark.parametrize("verb", VERBS)
def test_8_a_context_that_does_not_exist(fresh: Cluster, verb: str) -> None:
    output = failing(fresh, verb, "--context", "emulate")
    assert "context emulate: is not in the kubeconfig, which has: emulated" in output
    assert "Fix: Use --context emulated." in output


@pytest.mark.parametrize("verb", VERBS)
def test_8_a_kubeconfig_that_does_not_exist(fresh: Cluster, verb: str) -> None:
    fresh.kubeconfig.unlink()
    output = failing(fresh, verb)
    assert f"{fresh.kubeconfig}: no cluster is configured: the kubeconfig does not exist" in output
    assert "Fix: Set KUBECONFIG or --kubeconfig" in output


def test_8_no_kubeconfig_at_all(
    fresh: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setattr(connect, "DEFAULT", tmp_path / "home" / "config")
    assert cli.main(["diff", str(fresh.graph)]) == ClusterError.exit_code
    output = fresh.capsys.readouterr().err
    assert "config does not exist, KUBECONFIG is not set, and this is not a pod" in output


def test_8_a_web_server_that_is_no_api_server(fresh: Cluster) -> None:
    class Pages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>hello</html>")

    with QuietServer(("127.0.0.1", 0), Pages) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for scheme, cause in (
            ("http", "is not the API server of a cluster: /version has no version of Kubernetes"),
            ("https", "no TLS connection to the API server: "),
        ):
            url = f"{scheme}://127.0.0.1:{server.server_port}"
            edit_kubeconfig(
                fresh, lambda content, url=url: content["clusters"][0]["cluster"].update(server=url)
            )
            output = failing(fresh, "history")
            assert f"{url}: {cause}" in output
            assert "Fix: Correct `server` of the cluster in the kubeconfig" in output
        server.shutdown()


@pytest.mark.parametrize("verb", VERBS)
def test_8_an_unreachable_server(fresh: Cluster, verb: str) -> None:
    def edit(content: dict[str, Any]) -> None:
        content["clusters"][0]["cluster"]["server"] = "http://127.0.0.1:9"

    edit_kubeconfig(fresh, edit)
    output = failing(fresh, verb)
    assert "http://127.0.0.1:9: the API server does not respond" in output
    assert "Connection refused" in output


@pytest.fixture
def secure(fresh: Cluster, tmp_path: Path) -> Iterator[Cluster]:
    """The same cluster behind TLS, with a certificate of its own."""
    with ApiServer(store=fresh.api.store, certificate=certificate(tmp_path)) as api:
        content = yaml.safe_load(api.kubeconfig)
        del content["clusters"][0]["cluster"]["certificate-authority-data"]
        fresh.kubeconfig.write_text(yaml.safe_dump(content))
        yield fresh


@pytest.mark.program
@pytest.mark.parametrize("verb", VERBS)
def test_8_a_certificate_that_is_not_trusted(secure: Cluster, verb: str) -> None:
    output = failing(secure, verb)
    assert "the certificate of the API server is not trusted: " in output
    assert "Fix: Set certificate-authority-data of the cluster" in output


@pytest.mark.program
def test_8_an_unverified_server_is_a_single_warning(
    secure: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def edit(content: dict[str, Any]) -> None:
        content["clusters"][0]["cluster"]["insecure-skip-tls-verify"] = True

    edit_kubeconfig(secure, edit)
    monkeypatch.setattr(connect, "_warned", set())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        code, output = secure.run("diff")
    assert not [w for w in caught if issubclass(w.category, InsecureRequestWarning)]
    assert code == EXIT_CHANGED, output
    assert output.count("insecure-skip-tls-verify is set") == 1


def test_8_a_platform_without_the_operator_needs_no_crds(fresh: Cluster) -> None:
    fresh.api.absent = {(V1BETA1, plural) for plural in RESOURCES[V1BETA1]}
    fresh.edit(platform="plain")
    assert "rejected" not in fresh.expect(EXIT_CHANGED, "diff")


@pytest.mark.needs("recordings")
def test_13_a_malformed_object_is_a_rejection(installed: Cluster) -> None:
    """The recorded 500 without a reason, which was retried as a fault of the server."""
    file = RECORDINGS / "errors" / "422-dynamographdeployment.json"
    recorded = [e["response"] for e in yaml.safe_load(file.read_text())]
    (body, *_) = (r["body"] for r in recorded if r["status"] == 500)
    assert "reason" not in body

    installed.api.refuse("/quick$", ApiError(500, "", body["message"]), "PATCH")
    installed.edit(decode={"replicas": 2})
    output = installed.expect(EXIT_CHANGED, "diff")
    assert "rejected by the API server: DynamoGraphDeployment quick: failed to create typed" in (
        output
    )
    failing(installed, "apply")


def test_a_namespace_that_does_not_exist(fresh: Cluster) -> None:
    output = failing(fresh, "apply", "--namespace", "nowhere")
    assert 'namespaces "nowhere" not found. Fix: Create it with `kubectl create namespace' in output


def context_of(kind: str) -> Edit:
    return lambda content: content["contexts"][0]["context"].update({kind: "nope"})


LOGIN = {
    "apiVersion": "client.authentication.k8s.io/v1",
    "command": "no-such-login",
    "interactiveMode": "Never",
}
NO_CONTEXT = ("no current context; contexts: emulated. Fix: Use --context emulated.",)
NOT_A_KUBECONFIG = "the content is not that of a kubeconfig. Fix: Set KUBECONFIG"
# An edit of the kubeconfig or its whole content, and what the message says.
BROKEN: dict[str, tuple[Edit | bytes, tuple[str, ...]]] = {
    "no context": (lambda content: content.pop("current-context"), NO_CONTEXT),
    "empty context": (lambda content: content.update({"current-context": ""}), NO_CONTEXT),
    **{
        kind: (
            context_of(kind),
            (
                f"{kind} nope of context emulated: is not in the kubeconfig, which has: ",
                f"Fix: Set `{kind}` of context emulated to one that exists",
            ),
        )
        for kind in ("cluster", "user")
    },
    "no YAML": (b"clusters: [", ("no cluster is configured: ",)),
    "text": (b"hello", (NOT_A_KUBECONFIG,)),
    "list": (b"- 1", (NOT_A_KUBECONFIG,)),
    "binary": (b"\xff", (NOT_A_KUBECONFIG,)),
    "no base64": (
        lambda content: content["clusters"][0]["cluster"].update(
            {"server": "https://127.0.0.1:9", "certificate-authority-data": "xxx"}
        ),
        ("the data of a certificate or a key is not base64. Fix: ",),
    ),
    # The client would continue without credentials.
    "no login": (
        lambda content: content["users"][0].update(user={"exec": LOGIN}),
        (
            "the user's `exec` command gave no credentials: ",
            "no-such-login",
            "Fix: Install the command, or log in with it.",
        ),
    ),
}


@pytest.mark.program
@pytest.mark.parametrize("case", BROKEN)
def test_8_a_kubeconfig_with_a_mistake(fresh: Cluster, case: str) -> None:
    edit, texts = BROKEN[case]
    if isinstance(edit, bytes):
        fresh.kubeconfig.write_bytes(edit)
    else:
        edit_kubeconfig(fresh, edit)
    output = failing(fresh, "history")
    assert str(fresh.kubeconfig) in output or "context emulated" in output
    assert [text for text in texts if text not in output] == []


ANONYMOUS = 'secrets is forbidden: User "system:anonymous" cannot list resource "secrets"'
VERSION_REFUSED = (
    "the API server rejects the request for its version",
    "Fix: Correct `server` of the cluster in the kubeconfig",
)


@pytest.mark.parametrize(
    ("status", "message", "texts"),
    [
        *((status, "no", VERSION_REFUSED) for status in (403, 404, 500)),
        (
            401,
            "Unauthorized",
            (
                "401: the API server rejects the credentials: the token or certificate",
                "Fix: Renew the credentials of the kubeconfig's user",
            ),
        ),
        (
            403,
            ANONYMOUS,
            (
                "system:anonymous",
                "Fix: Add credentials (a token, a certificate or exec) to the kubeconfig",
            ),
        ),
    ],
)
def test_8_a_server_that_refuses(
    fresh: Cluster, status: int, message: str, texts: tuple[str, ...]
) -> None:
    def gate(path: str) -> None:
        if message != ANONYMOUS or path != "/version":
            raise ApiError(status, "Refused", message)

    fresh.api.gate = gate
    for verb in VERBS:
        output = failing(fresh, verb)
        assert "retrying" not in output
        assert [text for text in texts if text not in output] == []


NO_KIND = "the cluster has no kind DynamoGraphDeployment (nvidia.com/v1beta1)"
INSTALL = (
    "Fix: Install the Dynamo operator with its CRDs: see the page cluster of the documentation."
)


@pytest.mark.parametrize(
    ("absent", "texts"),
    [
        *(
            (
                {plural},
                (
                    "the CRDs of Dynamo are installed only in part: "
                    f"{plural}.nvidia.com is missing",
                    INSTALL,
                ),
            )
            for plural in (ADAPTERS, COMPONENTS)
        ),
        (set(RESOURCES[V1BETA1]), (f"{NO_KIND}. {INSTALL}",)),
        (
            {"older", *RESOURCES[V1BETA1]},
            (
                f"{NO_KIND}; it serves only nvidia.com/v1alpha1",
                "Fix: Upgrade the Dynamo operator and its CRDs",
            ),
        ),
    ],
    ids=["no adapters", "no components", "none", "older"],
)
def test_8_crds_that_are_missing(
    fresh: Cluster, absent: set[str], texts: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    if "older" in absent:
        older = {GRAPHS: "DynamoGraphDeployment", COMPONENTS: "DynamoComponentDeployment"}
        monkeypatch.setitem(RESOURCES, "nvidia.com/v1alpha1", older)
    fresh.api.absent = {(V1BETA1, plural) for plural in absent}
    for verb in ("diff", "apply"):
        output = failing(fresh, verb)
        assert [text for text in texts if text not in output] == []
