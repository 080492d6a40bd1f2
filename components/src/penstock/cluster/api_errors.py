"""What an error response of the API server means, and what its user can do. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

import urllib3
from kubernetes.client.exceptions import ApiException

import kubernetes
from penstock.cluster.compare import without_secrets
from penstock.cluster.workloads import Object
from penstock.errors import ClusterError, Problem
from penstock.files import in_repository, page

# A 403 of a quota or a policy has another text.
RBAC_DENIED = re.compile("cannot (patch|create) resource")
WEBHOOK = re.compile("failed calling webhook|conversion webhook for")
MALFORMED = "failed to create typed patch object"  # in a 500 without a reason
ANONYMOUS = 'User "system:anonymous"'
WITHOUT_CREDENTIALS = "Add credentials (a token, a certificate or exec) to the kubeconfig's user."
TOO_MANY = re.compile("too many requests", re.IGNORECASE)
LATER = "Wait a minute and run the command again: the API server limits the requests of this user."
ADDRESS = "Correct `server` of the cluster in the kubeconfig, and test it with `kubectl version`."
INSTALL_CRD = "Install the operator that provides this CRD, or turn off what needs it in the graph"
ROLES = in_repository("k8s/rbac")
RENEW = "Renew the credentials of the kubeconfig's user, for example by logging in again."
# How a message about a pod begins; it never existed.
REFUSED = re.compile('^(?:pods|Pod) "[^"]*" is (?:forbidden|invalid): ')


class UnavailableError(ClusterError):
    """The API server did not respond, or responded with a transient error; a retry may succeed."""


class ForbiddenError(ClusterError):
    """The user lacks permission for the request (403)."""


def first_request(error: ApiException, host: str) -> Problem:
    """The error of the request for the version, which every user may read."""
    if error.status == 401:
        message = "401: the API server rejects the credentials: the token or certificate has "
        return Problem(place=host, message=f"{message}expired or is not valid", fix=RENEW)
    message = f"{error.status}: the API server rejects the request for its version: {error.reason}"
    return Problem(place=host, message=message, fix=ADDRESS)


def problem(error: ApiException, place: str, manifest: Object, right: str) -> Problem:
    """The error of a request about the manifest; ``right``: what it needs, such as `get pods`."""
    fixes = {401: RENEW, 403: grant(right), 429: LATER}
    text = "; ".join(causes(error, manifest)) or str(error.reason)
    fix = fixes.get(error.status, "")
    if is_unknown_kind(error):
        fix = f"{INSTALL_CRD}: see {page('cluster')}."
    if error.status == 500 and WEBHOOK.search(text):
        fix = "Check that the pods behind this webhook run, such as the Dynamo operator's."
    if is_malformed(error):
        fix = (
            f"Install the CRDs of the Dynamo version that the graph targets: see {page('cluster')}."
        )
    if ANONYMOUS in text:
        fix = WITHOUT_CREDENTIALS
    return Problem(place=place, message=f"{error.status}: {text}", fix=fix)


def causes(error: ApiException, manifest: Object) -> Iterable[str]:
    """The API server's messages: one per field if it names fields."""
    status = status_of(error)
    if is_unknown_kind(error):
        yield f"the cluster has no kind {manifest['kind']} ({manifest.get('apiVersion')})"
    elif not status:
        yield str(error.reason)
    else:
        causes = details(error).get("causes") or ()
        fields = [f"{c['field']}: {c['message']}" for c in causes if c.get("field")]
        texts = fields or [str(status.get("message", error.reason))]
        yield from map(without_secrets, texts)


def is_rejection(error: ApiException) -> bool:
    """Whether the request is at fault, and neither the user's rights nor the server."""
    if error.status == 403 and RBAC_DENIED.search(str(error.body)):
        return False
    return error.status in (400, 403, 404, 409, 422) or is_malformed(error)


def fix_of_missing(error: ApiException) -> str:
    """The end of a message about a namespace or a kind that does not exist; "" for other errors."""
    if is_unknown_kind(error):
        return f". Fix: {INSTALL_CRD}"
    if error.status != 404 or details(error).get("kind") != "namespaces":
        return ""
    name = details(error).get("name", "")
    return f". Fix: Create it with `kubectl create namespace {name}`, or correct --namespace"


def is_malformed(error: ApiException) -> bool:
    """An unknown field, a wrong type or a duplicate key in a server-side apply."""
    return error.status == 500 and MALFORMED in str(error.body)


def is_unknown_kind(error: ApiException) -> bool:
    """Whether the path, not the object, is unknown: then the response is plain text."""
    return error.status == 404 and not status_of(error)


def details(error: ApiException) -> Object:
    return status_of(error).get("details") or {}


def status_of(error: ApiException) -> Object:
    """The Status of an error response; empty if it is not one."""
    try:
        status = json.loads(error.body)
    except (TypeError, ValueError):
        return {}
    return status if isinstance(status, dict) else {}


NOT_CONNECTED = (
    urllib3.exceptions.ProxyError,
    urllib3.exceptions.NewConnectionError,
    urllib3.exceptions.ConnectTimeoutError,
)


def no_response(
    error: urllib3.exceptions.HTTPError, configuration: kubernetes.client.Configuration
) -> UnavailableError:
    """The connection failed, or that to the proxy."""
    cause = getattr(error, "reason", error)
    if configuration.proxy and isinstance(cause, NOT_CONNECTED):
        proxy = without_secrets(str(configuration.proxy))
        message = f"cannot be reached through the proxy {proxy}: {short(error)}"
        fix = "Correct proxy-url of the cluster in the kubeconfig, or HTTPS_PROXY and NO_PROXY."
    else:
        message = f"the API server does not respond: {short(error)}"
        fix = "Check the connection with `kubectl cluster-info`, or select another cluster with "
        fix += "--context."
    return UnavailableError(message, place=configuration.host, fix=fix)


def short(error: Exception) -> str:
    text = str(getattr(error, "reason", None) or error)
    return text.rsplit(": ", 1)[-1]


def grant(right: str) -> str:
    """The fix of a missing right, such as "list secrets"."""
    return f"Grant the kubeconfig's user permission to {right}: roles are in {ROLES}."


def resource_of(path: str) -> str:
    """What the path of a request is about, such as pods/eviction: no namespace and no name."""
    parts = path.partition("?")[0].split("/")[3 if path.startswith("/api/") else 4 :]
    if parts[0] == "namespaces" and len(parts) > 2:
        parts = parts[2:]
    return "/".join([parts[0], *parts[2:]])
