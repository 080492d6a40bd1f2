"""The Kubernetes API calls of the verbs: get, list, server-side apply, dry run, delete, logs.

Uses the official client with a kubeconfig, or in a pod its service account. Every API error becomes
a ClusterError.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import urllib3
from kubernetes.client.exceptions import ApiException

import kubernetes
from penstock.cluster import api_errors, ownership
from penstock.cluster.api_errors import ForbiddenError, UnavailableError, resource_of
from penstock.cluster.connect import configuration_of, no_tls_connection
from penstock.cluster.ownership import HELM, added_paths
from penstock.cluster.workloads import PLURALS, WORKLOAD_KINDS, Object, named
from penstock.errors import ClusterError
from penstock.helm import ReleaseTarget

T = TypeVar("T")
TIMEOUT_S = 30
CONFLICT_ATTEMPTS = 5
APPLY, JSON_PATCH = "application/apply-patch+yaml", "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
IDENTITY = ("apiVersion", "kind", "metadata")
TRANSIENT_STATUS = (429, 500, 502, 503, 504)  # retried, like a broken connection


def _body_of(response: urllib3.HTTPResponse, seconds: float) -> bytes:
    """The body. HTTPError if it has not ended in this time: the client's time limit is that
    of one part, so a body that never ends would never exceed it."""
    deadline, parts = time.monotonic() + seconds, []
    while part := response.read1():
        parts.append(part)
        if time.monotonic() > deadline:
            response.close()
            message = f"the response has not ended after {seconds:g} s"
            raise urllib3.exceptions.HTTPError(message)
    response.release_conn()
    return b"".join(parts)


@dataclass(frozen=True, kw_only=True)
class DryRun:
    """The object after an apply, or why the API server would reject it."""

    result: Object | None = None
    errors: tuple[str, ...] = ()


class Api:
    """One namespace of one cluster. Methods raise ClusterError unless stated otherwise."""

    def __init__(self, client: kubernetes.client.ApiClient, namespace: str) -> None:
        self._client = client
        self.namespace = namespace
        self.timeout_s: float = TIMEOUT_S
        self.manager = HELM  # the field manager of the release's objects: see `follow`

    @classmethod
    def connect(cls, target: ReleaseTarget) -> Api:
        """Raises ClusterError if the cluster cannot be reached or rejects the credentials.

        Helm begins with the same request, and its message has neither the address nor a fix.
        """
        api = cls(kubernetes.client.ApiClient(configuration_of(target)), target.namespace)
        host = api._client.configuration.host
        try:
            version = api._call("GET", "/version")
        except ApiException as error:
            raise ClusterError(api_errors.first_request(error, host)) from None
        if not isinstance(version, dict) or "gitVersion" not in version:
            message = "is not the API server of a cluster: /version has no version of Kubernetes"
            raise ClusterError(message, place=host, fix=api_errors.ADDRESS)
        return api

    def served(self, path: str) -> Object | None:
        """A discovery document, such as /apis/nvidia.com/v1beta1; None if nothing is served there.

        Raises ForbiddenError if the user may not read it.
        """
        return self._found(path, named("APIResourceList", path), path)

    @property
    def configuration(self) -> kubernetes.client.Configuration:
        """The settings of the connection."""
        return self._client.configuration

    def follow(self, live: Iterable[Object]) -> None:
        """Write from now on as the client that applied these objects; no change without any."""
        if workloads := [o for o in live if o["kind"] in WORKLOAD_KINDS]:
            self.manager = ownership.manager_of(workloads)

    def get(self, manifest: Object) -> Object | None:
        """The live object of the manifest's kind and name; None if it does not exist."""
        return self._found(self._path(manifest), manifest)

    def existing(self, manifests: Iterable[Object]) -> list[Object]:
        """The live objects of those manifests that exist."""
        return [live for manifest in manifests if (live := self.get(manifest)) is not None]

    def definition(self, name: str) -> Object | None:
        """The CustomResourceDefinition of that name; None if it does not exist."""
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"
        about = named("CustomResourceDefinition", name)
        return self._found(path, about, "customresourcedefinitions")

    def _found(self, path: str, about: Object, resource: str = "") -> Object | None:
        """The object at the path; None if there is none."""
        with self._errors_of("get", about, resource, ignored=(404,)):
            live: Object = self._call("GET", path)
            return live
        return None

    @contextmanager
    def _errors_of(
        self, verb: str, about: Object, resource: str = "", ignored: Sequence[int] = ()
    ) -> Iterator[None]:
        """Raises ClusterError for an error response in the block unless its status is ignored."""
        try:
            yield
        except ApiException as error:
            if error.status not in ignored:
                raise self._cluster_error(error, verb, about, resource) from None

    def dry_run(self, manifest: Object, live: Object | None = None) -> DryRun:
        """What the API server would make of applying the manifest, or why it would reject it.

        ``live``: the object, if it exists. What `kubectl` added to it is left out, as
        `take_over` does before a write. Raises ForbiddenError if the user may not apply it.
        """
        query = {"dryRun": "All", "fieldManager": self.manager, "fieldValidation": "Strict"}
        path = self._path(manifest)
        try:
            applied = self._call("PATCH", path, {**query, "force": "true"}, manifest)
        except ApiException as error:
            if error.status != 422 or not (live and added_paths(live, self.manager)):
                return self._rejected(error, manifest)
            # Perhaps only together with the additions, such as a second port of the same name.
            content = {k: v for k, v in manifest.items() if k not in IDENTITY}
            patch = [{"op": "add", "path": f"/{k}", "value": v} for k, v in content.items()]
            try:
                applied = self._call("PATCH", path, query, patch, JSON_PATCH)
            except ApiException as second:
                return self._rejected(second, manifest)
        return DryRun(result=ownership.without_added(applied, self.manager))

    def _rejected(self, error: ApiException, manifest: Object) -> DryRun:
        if not api_errors.is_rejection(error):
            raise self._cluster_error(error, "patch", manifest) from None
        fix = api_errors.fix_of_missing(error)
        return DryRun(errors=tuple(text + fix for text in api_errors.causes(error, manifest)))

    def pod_errors(self, pod: Object) -> list[str]:
        """Why the API server would refuse to create the pod; empty if it would create it.

        Raises ForbiddenError if the user may not create pods.
        """
        query = {"dryRun": "All", "fieldManager": self.manager}
        try:
            self._call("POST", self._collection("v1", "Pod"), query, pod, "application/json")
        except ApiException as error:
            if error.status == 404:  # the namespace is missing: reported for each object
                return []
            if api_errors.is_rejection(error):
                return [api_errors.REFUSED.sub("", text) for text in api_errors.causes(error, pod)]
            raise self._cluster_error(error, "create", pod) from None
        return []

    def list(
        self, kind: str, labels: str = "", fields: str = "", *, version: str = "v1"
    ) -> list[Object]:
        """The namespace's objects of a kind that match the selectors; none if the cluster does not
        have the kind."""
        selectors = {"labelSelector": labels, "fieldSelector": fields}
        query = {name: selector for name, selector in selectors.items() if selector}
        page: Any = {}
        ignored = () if version == "v1" else (404,)
        with self._errors_of("list", named(kind, "*"), ignored=ignored):
            page = self._call("GET", self._collection(version, kind), query)
        items = page.get("items") or [] if isinstance(page, dict) else None
        if not isinstance(items, list):
            message = f"is not the API server of a cluster: it returned no list of {PLURALS[kind]}"
            raise ClusterError(
                message, place=self._client.configuration.host, fix=api_errors.ADDRESS
            )
        # Items of a list come without apiVersion and kind.
        return [{"apiVersion": version, "kind": kind, **item} for item in items]

    def apply(self, manifest: Object, manager: str) -> None:
        """Server-side apply as ``manager``, taking over fields that other managers own."""
        query = {"fieldManager": manager, "fieldValidation": "Strict", "force": "true"}
        with self._errors_of("patch", manifest):
            self._call("PATCH", self._path(manifest), query, manifest)

    def annotate(self, manifest: Object, annotations: Mapping[str, str]) -> None:
        """Set the annotations of the object, if it exists."""
        patch = {"metadata": {"annotations": dict(annotations)}}
        query = {"fieldManager": self.manager}
        with self._errors_of("patch", manifest, ignored=(404,)):
            self._call("PATCH", self._path(manifest), query, patch, MERGE_PATCH)

    def take_over(self, manifest: Object) -> None:
        """Make `manager` the only owner of the fields that ``manifest`` sets to another value, and
        of what `kubectl` added, so that Helm's apply corrects both.

        No value changes, and no object is created. Conflicts that remain after CONFLICT_ATTEMPTS,
        because of constant other writes, are reported by Helm.
        """
        for _ in range(CONFLICT_ATTEMPTS):
            live = self.get(manifest)
            if live is None:
                return
            entries = live["metadata"].get("managedFields") or []
            if added := added_paths(live, self.manager):
                owned = ownership.handed_over(entries, added, self.manager)
            elif fields := self._conflicts(manifest):
                owned = ownership.without_fields(entries, fields, self.manager)
            else:
                return
            patch = {
                "metadata/managedFields": owned,
                "metadata/resourceVersion": live["metadata"]["resourceVersion"],
            }
            operations = [{"op": "replace", "path": f"/{k}", "value": v} for k, v in patch.items()]
            with self._errors_of("patch", manifest, ignored=(409,)):  # a controller wrote meanwhile
                self._call("PATCH", self._path(manifest), {}, operations, JSON_PATCH)

    def _conflicts(self, manifest: Object) -> tuple[str, ...]:
        """The paths of fields that Helm's apply could not change, as the API server writes them."""
        query = {"dryRun": "All", "fieldManager": self.manager, "fieldValidation": "Strict"}
        try:
            self._call("PATCH", self._path(manifest), query, manifest)
        except ApiException as error:
            causes = api_errors.details(error).get("causes") or ()
            fields_in_conflict = (
                str(c["field"]) for c in causes if c.get("reason") == "FieldManagerConflict"
            )
            if error.status == 409 and (fields := tuple(fields_in_conflict)):
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
        with self._errors_of("delete", manifest, ignored=(404,)):
            self._call("DELETE", self._path(manifest), {"propagationPolicy": "Background"})

    def request(
        self,
        method: str,
        path: str,
        body: Object | None,
        about: Object,
        accepted: Sequence[int] = (),
    ) -> tuple[int, Object]:
        """The status and the body of a request ``about`` an object, such as an eviction.

        Raises ClusterError for errors that are not in ``accepted``.
        """
        media = MERGE_PATCH if method == "PATCH" else "application/json"
        try:
            return 200, self._call(method, path, {}, body, media)
        except ApiException as error:
            if error.status in accepted:
                return int(error.status), api_errors.status_of(error)
            verb = {"POST": "create"}.get(method, method.lower())
            raise self._cluster_error(error, verb, about, resource_of(path)) from None

    def log_tail(self, pod: str, container: str, lines: int) -> str:
        """The last lines of the previous container's log, or else of the current one's; "" if
        neither has a log."""
        for previous in ("true", "false"):
            query = {"container": container, "previous": previous, "tailLines": str(lines)}
            with suppress(ApiException):  # 400: there is no previous container
                if text := self._text(self._of_pod(pod, "log"), query):
                    return text
        return ""

    def log(self, pod: str, container: str, query: Mapping[str, str]) -> str:
        """The container's log, each line after its timestamp and a space; "" if it has none, for
        example because the container has not started."""
        query = {"container": container, "timestamps": "true", **query}
        with self._errors_of("get", named("Pod", pod), "pods/log", ignored=(400, 404)):
            return self._text(self._of_pod(pod, "log"), query)
        return ""

    def get_from_pod(self, pod: str, port: int, path: str) -> str:
        """The body of an HTTP GET to a pod, through the API server's proxy."""
        with self._errors_of("get", named("Pod", pod), "pods/proxy"):
            return self._text(self._of_pod(f"{pod}:{port}", f"proxy/{path}"))
        return ""

    def response_of_pod(self, pod: str, port: int, path: str) -> tuple[int, str]:
        """The status and the body of an HTTP GET to a pod, also of an error response of the pod."""
        with self._errors_of("get", named("Pod", pod), "pods/proxy"):
            try:
                return 200, self._text(self._of_pod(f"{pod}:{port}", f"proxy/{path}"))
            except ApiException as error:
                if api_errors.status_of(error).get("kind") == "Status":  # of the API server
                    raise
                return int(error.status), error.body.decode(errors="replace")
        raise AssertionError("no status is ignored")

    def _of_pod(self, pod: str, subresource: str) -> str:
        return f"{self._collection('v1', 'Pod')}/{pod}/{subresource}"

    def _path(self, manifest: Object) -> str:
        version, kind = manifest["apiVersion"], manifest["kind"]
        if kind not in PLURALS:
            raise ClusterError("the chart renders no object of this kind", place=kind)
        return f"{self._collection(version, kind)}/{manifest['metadata']['name']}"

    def _collection(self, version: str, kind: str) -> str:
        root = "/api/v1" if version == "v1" else f"/apis/{version}"
        return f"{root}/namespaces/{self.namespace}/{PLURALS[kind]}"

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
        return self._reachable(lambda: _body_of(response, self.timeout_s)).decode(errors="replace")

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
                _request_timeout=self.timeout_s,
                **response,
            )
        )

    def _reachable(self, send: Callable[[], T]) -> T:
        """The result of ``send``. Raises UnavailableError if the connection fails."""
        try:
            return send()
        except ApiException as error:
            if error.status != 0:  # 0: the client's, for an SSLError
                raise
            reason = str(error.reason).removeprefix("SSLError\n")
            raise no_tls_connection(self._client.configuration.host, reason) from None
        except urllib3.exceptions.HTTPError as error:
            raise api_errors.no_response(error, self._client.configuration) from None

    def _cluster_error(
        self, error: ApiException, verb: str, manifest: Object, resource: str = ""
    ) -> ClusterError:
        what = f"{manifest['kind']} {self.namespace}/{manifest['metadata']['name']}"
        right = f"{verb} {resource or PLURALS[manifest['kind']]}"
        problem = api_errors.problem(error, what, manifest, right)
        if error.status == 403:
            return ForbiddenError(problem)
        is_transient = error.status in TRANSIENT_STATUS and not api_errors.is_malformed(error)
        return UnavailableError(problem) if is_transient else ClusterError(problem)
