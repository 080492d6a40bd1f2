"""The Kubernetes API calls of the verbs: get, list, server-side apply, dry run, delete, logs.

Uses the official client with a kubeconfig, or in a pod its service account. Every API error becomes
a ClusterError.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import urllib3
import yaml
from kubernetes.client.exceptions import ApiException

import kubernetes
from penstock.cluster.compare import without_secrets
from penstock.cluster.helm_writer import FIELD_MANAGER
from penstock.cluster.ownership import without_fields
from penstock.cluster.workloads import Object
from penstock.errors import ClusterError, Problem
from penstock.helm import ReleaseTarget

T = TypeVar("T")
TIMEOUT_S = 30
POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
CONFLICT_ATTEMPTS = 5
APPLY, JSON_PATCH = "application/apply-patch+yaml", "application/json-patch+json"
# A 403 of a quota or a policy has another text.
RBAC_DENIED = re.compile("cannot (patch|create) resource")
WEBHOOK = "failed calling webhook"
TRANSIENT_STATUS = (429, 500, 502, 503, 504)  # retried, like a broken connection

# Resource name by kind: the kinds the chart renders, and the ones their controllers create.
PLURALS = {
    "ComputeDomain": "computedomains",
    "ConfigMap": "configmaps",
    "Deployment": "deployments",
    "Event": "events",
    "HorizontalPodAutoscaler": "horizontalpodautoscalers",
    "DynamoGraphDeployment": "dynamographdeployments",
    "Job": "jobs",
    "LeaderWorkerSet": "leaderworkersets",
    "NetworkPolicy": "networkpolicies",
    "PersistentVolumeClaim": "persistentvolumeclaims",
    "Pod": "pods",
    "PodDisruptionBudget": "poddisruptionbudgets",
    "PodMonitor": "podmonitors",
    "RoleBinding": "rolebindings",
    "ScaledObject": "scaledobjects",
    "Service": "services",
    "ServiceAccount": "serviceaccounts",
    "StatefulSet": "statefulsets",
}


def context_namespace(kubeconfig: Path | None, context: str | None) -> str:
    """The namespace kubectl and Helm would use: the context's, or in a pod the pod's."""
    with contextlib.suppress(kubernetes.config.ConfigException, yaml.YAMLError, OSError):
        contexts, active = kubernetes.config.list_kube_config_contexts(
            str(kubeconfig) if kubeconfig else None
        )
        chosen = [c for c in contexts if c["name"] == context] if context else [active]
        return str(chosen[0]["context"].get("namespace") or "default") if chosen else "default"
    with contextlib.suppress(OSError):
        return POD_NAMESPACE.read_text().strip()
    return "default"


class UnavailableError(ClusterError):
    """The API server did not respond, or responded with a transient error; a retry may succeed."""


class ForbiddenError(ClusterError):
    """The user lacks permission for the request (403)."""


class Api:
    """One namespace of one cluster. Methods raise ClusterError unless stated otherwise."""

    def __init__(self, client: kubernetes.client.ApiClient, namespace: str) -> None:
        self._client = client
        self.namespace = namespace

    @classmethod
    def connect(cls, target: ReleaseTarget) -> Api:
        configuration = kubernetes.client.Configuration()
        config = kubernetes.config
        try:
            try:
                config.load_kube_config(
                    str(target.kubeconfig) if target.kubeconfig else None,
                    target.context,
                    configuration,
                )
            except config.ConfigException:
                if target.kubeconfig or target.context:
                    raise
                config.load_incluster_config(configuration)
        except (config.ConfigException, yaml.YAMLError, OSError) as error:
            raise ClusterError(
                Problem(
                    message=f"no cluster is configured: {str(error).rstrip('.')}",
                    fix="Set KUBECONFIG or --kubeconfig, or compare with a file: `penstock diff "
                    "--from FILE`",
                )
            ) from None
        configuration.retries = False  # report an unreachable cluster immediately
        return cls(kubernetes.client.ApiClient(configuration), target.namespace)

    def get(self, manifest: Object) -> Object | None:
        """The live object of the manifest's kind and name; None if it does not exist."""
        try:
            live: Object = self._call("GET", self._path(manifest))
        except ApiException as error:
            if error.status == 404:
                return None
            raise self._cluster_error(error, "get", manifest) from None
        return live

    def definition(self, name: str) -> Object | None:
        """The CustomResourceDefinition of that name; None if it does not exist."""
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"
        try:
            found: Object = self._call("GET", path)
        except ApiException as error:
            if error.status == 404:
                return None
            manifest = _named("CustomResourceDefinition", name)
            resource = "customresourcedefinitions"
            raise self._cluster_error(error, "get", manifest, resource) from None
        return found

    def dry_run_errors(self, manifest: Object) -> list[str]:
        """Why the API server would reject applying the manifest; empty if it would accept it.

        Raises ForbiddenError if the user may not apply it.
        """
        query = {
            "dryRun": "All",
            "fieldManager": FIELD_MANAGER,
            "fieldValidation": "Strict",
            "force": "true",
        }
        try:
            self._call("PATCH", self._path(manifest), query, manifest)
        except ApiException as error:
            is_of_user = error.status == 403 and bool(RBAC_DENIED.search(str(error.body)))
            if error.status in (400, 403, 404, 409, 422) and not is_of_user:
                return [*_causes(error, manifest)]
            raise self._cluster_error(error, "patch", manifest) from None
        return []

    def list(self, kind: str, labels: str = "", fields: str = "") -> list[Object]:
        """The namespace's objects of a core (v1) kind that match the selectors."""
        selectors = {"labelSelector": labels, "fieldSelector": fields}
        query = {name: value for name, value in selectors.items() if value}
        try:
            page = self._call("GET", f"/api/v1/namespaces/{self.namespace}/{PLURALS[kind]}", query)
        except ApiException as error:
            raise self._cluster_error(error, "list", _named(kind, "*")) from None
        # Items of a list come without apiVersion and kind.
        return [{"apiVersion": "v1", "kind": kind, **item} for item in page["items"]]

    def apply(self, manifest: Object, manager: str = FIELD_MANAGER) -> None:
        """Server-side apply as ``manager``, taking over fields that other managers own."""
        query = {"fieldManager": manager, "fieldValidation": "Strict", "force": "true"}
        try:
            self._call("PATCH", self._path(manifest), query, manifest)
        except ApiException as error:
            raise self._cluster_error(error, "patch", manifest) from None

    def take_over(self, manifest: Object) -> None:
        """Remove other managers from the fields that ``manifest`` sets to another value.

        No value changes, and no object is created. Conflicts that remain after CONFLICT_ATTEMPTS,
        because of constant other writes, are reported by Helm.
        """
        for _ in range(CONFLICT_ATTEMPTS):
            live = self.get(manifest)
            fields = self._conflicts(manifest) if live is not None else ()
            if live is None or not fields:
                return
            meta = live["metadata"]
            patch = {
                "metadata/managedFields": without_fields(
                    meta["managedFields"], fields, FIELD_MANAGER
                ),
                "metadata/resourceVersion": meta["resourceVersion"],
            }
            operations = [{"op": "replace", "path": f"/{k}", "value": v} for k, v in patch.items()]
            try:
                self._call("PATCH", self._path(manifest), {}, operations, JSON_PATCH)
            except ApiException as error:
                if error.status != 409:  # a controller wrote in between
                    raise self._cluster_error(error, "patch", manifest) from None

    def _conflicts(self, manifest: Object) -> tuple[str, ...]:
        """The paths of fields that Helm's apply could not change, as the API server writes them."""
        query = {"dryRun": "All", "fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"}
        try:
            self._call("PATCH", self._path(manifest), query, manifest)
        except ApiException as error:
            causes = _details(error).get("causes") or ()
            found = (str(c["field"]) for c in causes if c.get("reason") == "FieldManagerConflict")
            if error.status == 409 and (fields := tuple(found)):
                return fields
            raise self._cluster_error(error, "patch", manifest) from None
        return ()

    def drop_ownership(self, manifest: Object, manager: str) -> None:
        """Remove the manager from the object's fields; fields that it alone owns are deleted."""
        metadata = {"name": manifest["metadata"]["name"]}
        self.apply(
            {k: manifest[k] for k in ("apiVersion", "kind")} | {"metadata": metadata}, manager
        )

    def delete(self, manifest: Object) -> None:
        """Delete with its dependents, in the background; a missing object is not an error."""
        try:
            self._call("DELETE", self._path(manifest), {"propagationPolicy": "Background"})
        except ApiException as error:
            if error.status != 404:
                raise self._cluster_error(error, "delete", manifest) from None

    def log_tail(self, pod: str, container: str, lines: int) -> str:
        """The last lines of the previous container's log, or else of the current one's; "" if
        neither has a log."""
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}/log"
        for previous in ("true", "false"):
            query = {"container": container, "previous": previous, "tailLines": str(lines)}
            try:
                if text := self._text(path, query):
                    return text
            except ApiException:
                continue  # 400: there is no previous container
        return ""

    def get_from_pod(self, pod: str, port: int, path: str) -> str:
        """The body of an HTTP GET to a pod, through the API server's proxy."""
        proxied = f"/api/v1/namespaces/{self.namespace}/pods/{pod}:{port}/proxy/{path}"
        try:
            return self._text(proxied)
        except ApiException as error:
            raise self._cluster_error(error, "get", _named("Pod", pod), "pods/proxy") from None

    def _path(self, manifest: Object) -> str:
        version, kind = manifest["apiVersion"], manifest["kind"]
        if kind not in PLURALS:
            raise ClusterError(
                Problem(place=kind, message="the chart renders no object of this kind")
            )
        root = "/api/v1" if version == "v1" else f"/apis/{version}"
        name = manifest["metadata"]["name"]
        return f"{root}/namespaces/{self.namespace}/{PLURALS[kind]}/{name}"

    def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Object | Sequence[Object] | None = None,
        media: str = APPLY,
    ) -> Any:
        return self._request(method, path, query, body, media, response_type="object")

    def _text(self, path: str, query: Mapping[str, str] | None = None) -> str:
        response = self._request("GET", path, query, None, "", _preload_content=False)
        return self._reachable(lambda: bytes(response.data)).decode(errors="replace")

    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Object | Sequence[Object] | None,
        media: str,
        **response: Any,
    ) -> Any:
        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = media
        return self._reachable(
            lambda: self._client.call_api(
                path,
                method,
                query_params=list((query or {}).items()),
                header_params=headers,
                body=body,
                auth_settings=["BearerToken"],
                _return_http_data_only=True,
                _request_timeout=TIMEOUT_S,
                **response,
            )
        )

    def _reachable(self, send: Callable[[], T]) -> T:
        """The result of ``send``. Raises UnavailableError if the connection fails."""
        try:
            return send()
        except urllib3.exceptions.HTTPError as error:
            host = self._client.configuration.host
            raise UnavailableError(
                Problem(
                    place=host,
                    message=f"the API server does not respond: {_short(error)}",
                    fix="Check the connection with `kubectl cluster-info`, or select another "
                    "cluster with --context.",
                )
            ) from None

    def _cluster_error(
        self, error: ApiException, verb: str, manifest: Object, resource: str = ""
    ) -> ClusterError:
        what = f"{manifest['kind']} {self.namespace}/{manifest['metadata']['name']}"
        resource = resource or PLURALS[manifest["kind"]]
        fixes = {
            401: "Renew the credentials of the kubeconfig's user.",
            403: f"Grant the kubeconfig's user permission to {verb} {resource}.",
        }
        text = "; ".join(_causes(error, manifest)) or str(error.reason)
        fix = fixes.get(error.status, "")
        if _is_unknown_kind(error):
            fix = "Install the operator that provides this CRD: see k8s/README.md."
        if error.status == 500 and WEBHOOK in text:
            fix = "Check that the pods behind this webhook run, such as the Dynamo operator's."
        problem = Problem(place=what, message=f"{error.status}: {text}", fix=fix)
        if error.status == 403:
            return ForbiddenError(problem)
        return (
            UnavailableError(problem) if error.status in TRANSIENT_STATUS else ClusterError(problem)
        )


def _named(kind: str, name: str) -> Object:
    return {"kind": kind, "metadata": {"name": name}}


def _causes(error: ApiException, manifest: Object) -> Iterable[str]:
    """The API server's messages: one per field if it names fields."""
    status = _status(error)
    if _is_unknown_kind(error):
        yield f"the cluster has no kind {manifest['kind']} ({manifest.get('apiVersion')})"
    elif not status:
        yield str(error.reason)
    else:
        causes = _details(error).get("causes") or ()
        fields = [f"{c['field']}: {c['message']}" for c in causes if c.get("field")]
        texts = fields or [str(status.get("message", error.reason))]
        yield from map(without_secrets, texts)


def _is_unknown_kind(error: ApiException) -> bool:
    """Whether the path, not the object, is unknown: then the response is plain text."""
    return error.status == 404 and not _status(error)


def _details(error: ApiException) -> Object:
    return _status(error).get("details") or {}


def _status(error: ApiException) -> Object:
    """The Status of an error response; empty if it is not one."""
    try:
        status = json.loads(error.body)
    except (TypeError, ValueError):
        return {}
    return status if isinstance(status, dict) else {}


def _short(error: Exception) -> str:
    text = str(getattr(error, "reason", None) or error)
    return text.rsplit(": ", 1)[-1]
