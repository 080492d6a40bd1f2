"""The connection to a cluster: the kubeconfig, and a first request.

Each mistake in a kubeconfig has a message of its own, before Helm reports it in its words.
"""

from __future__ import annotations

import binascii
import contextlib
import difflib
import ipaddress
import logging
import os
import sys
import urllib.request
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

import urllib3
import yaml

import kubernetes
from penstock.cluster.compare import without_secrets
from penstock.errors import ClusterError
from penstock.helm import ReleaseTarget

# What the client raises for a file that is not a kubeconfig, such as a list.
UNREADABLE = (
    kubernetes.config.ConfigException,
    yaml.YAMLError,
    OSError,
    TypeError,
    AttributeError,
    KeyError,
    ValueError,
)
DEFAULT = Path("~/.kube/config")
SELECT = "Set KUBECONFIG or --kubeconfig."
POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
INSECURE = (
    "insecure-skip-tls-verify is set: the identity of the API server is not verified. Fix: Set "
    "certificate-authority-data of the cluster in the kubeconfig."
)


def context_namespace(kubeconfig: Path | None, context: str | None) -> str:
    """The namespace kubectl and Helm would use: the context's, or in a pod the pod's."""
    with contextlib.suppress(*UNREADABLE):
        contexts, active = kubernetes.config.list_kube_config_contexts(
            str(kubeconfig) if kubeconfig else None
        )
        chosen = [c for c in contexts if c["name"] == context] if context else [active]
        return str(chosen[0]["context"].get("namespace") or "default") if chosen else "default"
    with contextlib.suppress(OSError):
        return POD_NAMESPACE.read_text().strip()
    return "default"


def configuration_of(target: ReleaseTarget) -> kubernetes.client.Configuration:
    """The connection of the target's context, or in a pod of its service account.

    Raises ClusterError for a kubeconfig or a context that cannot be used.
    """
    configuration = kubernetes.client.Configuration()
    files = _files(target)
    in_pod = not target.kubeconfig and not os.environ.get("KUBECONFIG") and not target.context
    try:
        if in_pod and not files[0].exists():
            _load_pod(configuration)
        else:
            # Of several files in KUBECONFIG, the missing ones are ignored.
            if not any(path.exists() for path in files):
                names = ", ".join(map(str, files))
                raise _unusable(names, "the kubeconfig does not exist")
            cluster = _require_context(target, files)
            with _failed_logins() as failed:
                path = str(target.kubeconfig) if target.kubeconfig else None
                kubernetes.config.load_kube_config(path, target.context, configuration)
            configuration.proxy = proxy_of(cluster, configuration.host)
            configuration.proxy_headers = _proxy_headers(configuration.proxy or "") or None
            if failed:
                message = f"the user's `exec` command gave no credentials: {' '.join(failed)}"
                place = ", ".join(map(str, files))
                raise ClusterError(
                    message, place=place, fix="Install the command, or log in with it."
                )
    except UNREADABLE as error:
        raise _unusable(", ".join(map(str, files)), _reason(error)) from None
    configuration.retries = False  # report an unreachable cluster immediately
    if not configuration.verify_ssl:
        _warn_once()
    return configuration


def _reason(error: Exception) -> str:
    if isinstance(error, binascii.Error):
        return "the data of a certificate or a key is not base64"
    if isinstance(error, TypeError | AttributeError | KeyError | ValueError):
        return "the content is not that of a kubeconfig"  # the client's own error is of Python
    return " ".join(str(error).split()).rstrip(".")


def no_tls_connection(host: str, reason: str) -> ClusterError:
    """The API server has no TLS, or its certificate was not issued by a trusted authority."""
    if "CERTIFICATE_VERIFY_FAILED" not in reason:
        message = f"no TLS connection to the API server: {reason}"
        fix = "Correct `server` of the cluster in the kubeconfig, or the user's certificate."
        return ClusterError(message, place=host, fix=fix)
    return ClusterError(
        f"the certificate of the API server is not trusted: {reason}",
        place=host,
        fix="Set certificate-authority-data of the cluster in the kubeconfig to the cluster's CA, "
        "or correct the server's name.",
    )


def _files(target: ReleaseTarget) -> list[Path]:
    if target.kubeconfig:
        return [target.kubeconfig]
    paths = [p for p in os.environ.get("KUBECONFIG", "").split(os.pathsep) if p]
    return [Path(p) for p in paths] or [DEFAULT.expanduser()]


def _load_pod(configuration: kubernetes.client.Configuration) -> None:
    try:
        kubernetes.config.load_incluster_config(configuration)
    except kubernetes.config.ConfigException:
        raise _unusable(
            "", f"{DEFAULT} does not exist, KUBECONFIG is not set, and this is not a pod"
        ) from None


def proxy_of(cluster: Mapping[str, Any], host: str) -> str | None:
    """The URL of the proxy to the API server: `proxy-url` of the cluster in the kubeconfig, else
    that of the environment, as for kubectl and Helm; None without one.

    The Python client reads neither.
    """
    server = urlsplit(host)
    url = str(cluster.get("proxy-url") or "")
    name = "proxy-url of the kubeconfig"
    if not url and not _is_direct(server):
        url = urllib.request.getproxies_environment().get(server.scheme, "")
        name = f"{server.scheme.upper()}_PROXY"
    if url and "://" not in url:
        url = f"http://{url}"
    if url and urlsplit(url).scheme not in ("http", "https"):
        message = f"{without_secrets(url)} is not supported"
        raise ClusterError(message, place=name, fix="Set it to a proxy with http or https.")
    return url or None


def _is_direct(server: SplitResult) -> bool:
    """Whether the environment exempts the server from its proxy: loopback, and NO_PROXY as Go reads
    it, with networks."""
    name = server.hostname or ""
    if name == "localhost" or urllib.request.proxy_bypass_environment(server.netloc):  # type: ignore[attr-defined]
        return True
    exempt = urllib.request.getproxies_environment().get("no", "").split(",")
    for network in ("127.0.0.0/8", "::1/128", *(word.strip() for word in exempt if "/" in word)):
        with contextlib.suppress(ValueError):  # a name, or no network
            if ipaddress.ip_address(name) in ipaddress.ip_network(network, strict=False):
                return True
    return False


def _proxy_headers(url: str) -> dict[str, str]:
    parts = urlsplit(url)
    if parts.username is None:
        return {}
    user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return dict(urllib3.make_headers(proxy_basic_auth=user))


def _require_context(target: ReleaseTarget, files: list[Path]) -> Mapping[str, Any]:
    """The cluster of the context. ClusterError unless the context exists, and its cluster and its
    user."""
    place = os.pathsep.join(map(str, files))
    merged = kubernetes.config.kube_config.KubeConfigMerger(place).config.value
    named = {
        kind: {str(node.value["name"]): node.value for node in merged[f"{kind}s"]}
        for kind in ("context", "cluster", "user")
    }
    name = target.context or merged.get("current-context")
    if not name:
        contexts = sorted(named["context"])
        message = f"no current context; contexts: {', '.join(contexts) or 'none'}"
        raise ClusterError(message, place=place, fix=_select(contexts))
    if name not in named["context"]:
        nearest = difflib.get_close_matches(name, named["context"], 1)
        fix = _select(nearest or sorted(named["context"]))
        raise _missing(f"context {name}", named["context"], fix)
    context = named["context"][name].get("context") or {}
    for kind in ("cluster", "user"):
        if (part := context.get(kind)) and part not in named[kind]:
            fix = f"Set `{kind}` of context {name} to one that exists, or use another --context."
            raise _missing(f"{kind} {part} of context {name}", named[kind], fix)
    entry = named["cluster"].get(str(context.get("cluster")), {})
    return entry.get("cluster") or {}


def _select(contexts: list[str]) -> str:
    """The fix that names the only candidate."""
    if len(contexts) == 1:
        return f"Use --context {contexts[0]}."
    return "Select one of them with --context." if contexts else SELECT


def _missing(place: str, present: Iterable[str], fix: str) -> ClusterError:
    names = ", ".join(sorted(present)) or "none"
    return ClusterError(f"is not in the kubeconfig, which has: {names}", place=place, fix=fix)


@contextlib.contextmanager
def _failed_logins() -> Iterator[list[str]]:
    """What the client logs when the user's `exec` command fails; it then goes on without
    credentials."""
    messages: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield messages
    finally:
        root.removeHandler(handler)


def _unusable(place: str, message: str) -> ClusterError:
    return ClusterError(f"no cluster is configured: {message}", place=place, fix=SELECT)


_warned: set[str] = set()


def _warn_once() -> None:
    """urllib3 would warn at each request."""
    warnings.simplefilter("ignore", urllib3.exceptions.InsecureRequestWarning)
    if INSECURE not in _warned:
        _warned.add(INSECURE)
        print(f"penstock: warning: {INSECURE}", file=sys.stderr)
