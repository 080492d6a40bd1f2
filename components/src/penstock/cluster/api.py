"""The Kubernetes API, as far as the verbs need it: read objects, and ask what a write would give.

The official client, with kubeconfig or in a pod; every refusal becomes a ClusterError.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import urllib3
from kubernetes.client.exceptions import ApiException

import kubernetes
from penstock.cluster.workloads import Object
from penstock.errors import ClusterError, Problem

TIMEOUT_S = 30
MANAGER = "helm"  # in whose name objects are written, so that a dry run answers as an upgrade

# Kinds that the chart makes → plural; the path follows from apiVersion.
PLURALS = {
    "ComputeDomain": "computedomains",
    "ConfigMap": "configmaps",
    "Deployment": "deployments",
    "DynamoGraphDeployment": "dynamographdeployments",
    "Job": "jobs",
    "NetworkPolicy": "networkpolicies",
    "PersistentVolumeClaim": "persistentvolumeclaims",
    "PodDisruptionBudget": "poddisruptionbudgets",
    "PodMonitor": "podmonitors",
    "RoleBinding": "rolebindings",
    "Service": "services",
    "ServiceAccount": "serviceaccounts",
    "StatefulSet": "statefulsets",
}


class Api:
    """One cluster and namespace. Raises ClusterError for all but what a method says."""

    def __init__(self, client: kubernetes.client.ApiClient, namespace: str) -> None:
        self._client = client
        self.namespace = namespace

    @classmethod
    def connect(cls, namespace: str, kubeconfig: Path | None, context: str | None) -> Api:
        configuration = kubernetes.client.Configuration()
        config = kubernetes.config
        try:
            try:
                config.load_kube_config(
                    str(kubeconfig) if kubeconfig else None, context, configuration
                )
            except config.ConfigException:
                if kubeconfig or context:
                    raise
                config.load_incluster_config(configuration)
        except config.ConfigException as error:
            raise ClusterError(
                Problem(
                    message=f"no cluster is configured: {error}",
                    fix="set KUBECONFIG or --kubeconfig, or name a file to compare with: --from",
                )
            ) from None
        configuration.retries = False  # a cluster that is away is said at once
        return cls(kubernetes.client.ApiClient(configuration), namespace)

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

    def _path(self, manifest: Object) -> str:
        version, kind = manifest["apiVersion"], manifest["kind"]
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
        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/apply-patch+yaml"
        try:
            return self._client.call_api(
                path,
                method,
                query_params=list((query or {}).items()),
                header_params=headers,
                body=body,
                response_type="object",
                auth_settings=["BearerToken"],
                _return_http_data_only=True,
                _request_timeout=TIMEOUT_S,
            )
        except urllib3.exceptions.HTTPError as error:
            host = self._client.configuration.host
            raise ClusterError(
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
        return ClusterError(
            Problem(place=what, message=f"{error.status}: {text}", fix=fixes.get(error.status, ""))
        )


def _causes(error: ApiException) -> Iterable[str]:
    """The API server's own words, field by field where it names fields."""
    try:
        status = json.loads(error.body)
    except (TypeError, ValueError):
        yield str(error.reason)
        return
    causes = (status.get("details") or {}).get("causes") or []
    fields = [f"{c['field']}: {c['message']}" for c in causes if c.get("field")]
    yield from fields or [str(status.get("message", error.reason))]


def _short(error: Exception) -> str:
    text = str(getattr(error, "reason", None) or error)
    return text.rsplit(": ", 1)[-1]
