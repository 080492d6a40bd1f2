"""The Kubernetes API, as far as the verbs need it: read, list, write in Helm's name, try a write.

The official client, with kubeconfig or in a pod; every refusal becomes a ClusterError.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import urllib3
import yaml
from kubernetes.client.exceptions import ApiException

import kubernetes
from penstock.cluster.compare import without_secrets
from penstock.cluster.workloads import Object
from penstock.errors import ClusterError, Problem
from penstock.helm import ReleaseTarget

T = TypeVar("T")
TIMEOUT_S = 30
POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
MANAGER = "helm"  # in whose name fields are held, so that Helm's command line can go on from here
AWAY = (429, 500, 502, 503, 504)  # what passes, as a connection that breaks does

# Kinds that the chart makes, and what comes of them → plural; apiVersion gives the path.
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
    """Where kubectl and Helm would work: the context's namespace, in a pod the pod's."""
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
    """No answer, or one that says to come back."""


class ForbiddenError(ClusterError):
    """The user may not ask for this."""


class Api:
    """One cluster and namespace. Raises ClusterError for all but what a method says."""

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
                    message=f"no cluster is configured: {error}",
                    fix="set KUBECONFIG or --kubeconfig, or name a file to compare with: --from",
                )
            ) from None
        configuration.retries = False  # a cluster that is away is said at once
        return cls(kubernetes.client.ApiClient(configuration), target.namespace)

    def get(self, manifest: Object) -> Object | None:
        """The live object of the manifest's kind and name; None if there is none."""
        try:
            found: Object = self._call("GET", self._path(manifest))
        except ApiException as error:
            if error.status == 404:
                return None
            raise self._refusal(error, "read", manifest) from None
        return found

    def refusals(self, manifest: Object) -> list[str]:
        """What the API server would refuse of a write; empty where it would take it."""
        query = {
            "dryRun": "All",
            "fieldManager": MANAGER,
            "fieldValidation": "Strict",
            "force": "true",
        }
        try:
            self._call("PATCH", self._path(manifest), query, manifest)
        except ApiException as error:
            if error.status in (400, 403, 404, 409, 422):
                return [*_causes(error)]
            raise self._refusal(error, "write", manifest) from None
        return []

    def list(self, kind: str, labels: str = "", fields: str = "") -> list[Object]:
        """The namespace's objects of a kind of the core, by selectors."""
        selectors = {"labelSelector": labels, "fieldSelector": fields}
        query = {name: value for name, value in selectors.items() if value}
        try:
            found = self._call("GET", f"/api/v1/namespaces/{self.namespace}/{PLURALS[kind]}", query)
        except ApiException as error:
            raise self._refusal(error, "list", _named(kind, "*")) from None
        # Items of a list do not say what they are.
        return [{"apiVersion": "v1", "kind": kind, **item} for item in found["items"]]

    def hold(self, manifest: Object, manager: str = MANAGER) -> None:
        """Write it in the manager's name, and take its fields from whoever else holds them."""
        self._apply(manifest, manager)

    def let_go(self, manifest: Object, manager: str) -> None:
        """End the manager's claims on the object; a field that nobody else holds goes with them."""
        metadata = {"name": manifest["metadata"]["name"]}
        bare = {k: manifest[k] for k in ("apiVersion", "kind")} | {"metadata": metadata}
        self._apply(bare, manager)

    def _apply(self, manifest: Object, manager: str) -> None:
        query = {"fieldManager": manager, "fieldValidation": "Strict", "force": "true"}
        try:
            self._call("PATCH", self._path(manifest), query, manifest)
        except ApiException as error:
            raise self._refusal(error, "write", manifest) from None

    def delete(self, manifest: Object) -> None:
        """With what it owns, in the background; what is gone already is no error."""
        try:
            self._call("DELETE", self._path(manifest), {"propagationPolicy": "Background"})
        except ApiException as error:
            if error.status != 404:
                raise self._refusal(error, "delete", manifest) from None

    def last_words(self, pod: str, container: str, lines: int) -> str:
        """The end of the container's log, of the one before it if that one ended; "" if gone."""
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}/log"
        for previous in ("true", "false"):
            query = {"container": container, "previous": previous, "tailLines": str(lines)}
            try:
                if text := self._text(path, query):
                    return text
            except ApiException:
                continue  # 400: there is no container before it
        return ""

    def ask_pod(self, pod: str, port: int, path: str) -> str:
        """What a pod answers over HTTP, through the API server's proxy."""
        proxied = f"/api/v1/namespaces/{self.namespace}/pods/{pod}:{port}/proxy/{path}"
        try:
            return self._text(proxied)
        except ApiException as error:
            raise self._refusal(error, "get pods/proxy of", _named("Pod", pod)) from None

    def _path(self, manifest: Object) -> str:
        version, kind = manifest["apiVersion"], manifest["kind"]
        if kind not in PLURALS:
            raise ClusterError(Problem(place=kind, message="no such kind is in our chart"))
        root = "/api/v1" if version == "v1" else f"/apis/{version}"
        name = manifest["metadata"]["name"]
        return f"{root}/namespaces/{self.namespace}/{PLURALS[kind]}/{name}"

    def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Object | None = None,
    ) -> Any:
        return self._ask(method, path, query, body, response_type="object")

    def _text(self, path: str, query: Mapping[str, str] | None = None) -> str:
        answer = self._ask("GET", path, query, None, _preload_content=False)
        return self._answered(lambda: bytes(answer.data)).decode(errors="replace")

    def _ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Object | None,
        **answer: Any,
    ) -> Any:
        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/apply-patch+yaml"
        return self._answered(
            lambda: self._client.call_api(
                path,
                method,
                query_params=list((query or {}).items()),
                header_params=headers,
                body=body,
                auth_settings=["BearerToken"],
                _return_http_data_only=True,
                _request_timeout=TIMEOUT_S,
                **answer,
            )
        )

    def _answered(self, ask: Callable[[], T]) -> T:
        try:
            return ask()
        except urllib3.exceptions.HTTPError as error:
            host = self._client.configuration.host
            raise UnavailableError(
                Problem(
                    place=host,
                    message=f"the API server does not answer: {_short(error)}",
                    fix="look at `kubectl cluster-info`; --context names another cluster",
                )
            ) from None

    def _refusal(self, error: ApiException, verb: str, manifest: Object) -> ClusterError:
        what = f"{manifest['kind']} {self.namespace}/{manifest['metadata']['name']}"
        fixes = {
            401: "renew the credentials of the kubeconfig's user",
            403: f"let the kubeconfig's user {verb} {PLURALS[manifest['kind']]}",
        }
        text = "; ".join(_causes(error)) or str(error.reason)
        problem = Problem(
            place=what, message=f"{error.status}: {text}", fix=fixes.get(error.status, "")
        )
        if error.status == 403:
            return ForbiddenError(problem)
        return UnavailableError(problem) if error.status in AWAY else ClusterError(problem)


def _named(kind: str, name: str) -> Object:
    return {"kind": kind, "metadata": {"name": name}}


def _causes(error: ApiException) -> Iterable[str]:
    """The API server's own words, field by field where it names fields."""
    try:
        status = json.loads(error.body)
    except (TypeError, ValueError):
        yield str(error.reason)
        return
    causes = (status.get("details") or {}).get("causes") or []
    fields = [f"{c['field']}: {c['message']}" for c in causes if c.get("field")]
    texts = fields or [str(status.get("message", error.reason))]
    yield from map(without_secrets, texts)


def _short(error: Exception) -> str:
    text = str(getattr(error, "reason", None) or error)
    return text.rsplit(": ", 1)[-1]
