"""Admission of new objects: terminating namespaces, ServiceAccounts, limits, PodSecurity, quotas.

The texts follow ../shared/real-cluster/errors. Of the Pod Security Standards only what the
recordings and the chart's pods can violate is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tests.support.emulated_cluster.store import (
    ApiError,
    Key,
    Object,
    Store,
    details,
    invalid,
    resource,
)
from tests.support.kubernetes_schemas.syntax import quantity

ENFORCE = "pod-security.kubernetes.io/enforce"
CAPABILITIES = (
    *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD"),
    *("NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
)


def admit(store: Store, key: Key, manifest: Object) -> None:
    """Fill in limits, or raise the ApiError of a refusal. ``manifest`` does not exist yet."""
    namespace = store.objects.get(("v1", "namespaces", "", key[2]))
    if namespace is None:
        return
    if "deletionTimestamp" in namespace["metadata"]:
        text = f"namespace {key[2]} is being terminated"
        cause = {"reason": "NamespaceTerminating", "message": text, "field": "metadata.namespace"}
        reason = f"unable to create new content in namespace {key[2]} because it is being"
        raise _forbidden(key, f"{reason} terminated", [cause])
    if key[1] == "pods":
        _require_service_account(store, key, manifest)
        _require_priority_class(store, key, manifest)
        _apply_limits(store, key, manifest)
        level = namespace["metadata"].get("labels", {}).get(ENFORCE, "privileged")
        if problems := ", ".join(violations(manifest["spec"], level)):
            raise _forbidden(key, f'violates PodSecurity "{level}:latest": {problems}')
    _require_quota(store, key, manifest)


def _require_service_account(store: Store, key: Key, pod: Object) -> None:
    name = pod["spec"].get("serviceAccountName") or "default"
    if name != "default" and ("v1", "serviceaccounts", key[2], name) not in store.objects:
        text = f"error looking up service account {key[2]}/{name}"
        raise _forbidden(key, f'{text}: serviceaccount "{name}" not found')


def _require_priority_class(store: Store, key: Key, pod: Object) -> None:
    name = pod["spec"].get("priorityClassName") or "system-node-critical"
    place = ("scheduling.k8s.io/v1", "priorityclasses", "", name)
    if not name.startswith("system-") and place not in store.objects:
        raise _forbidden(key, f"no PriorityClass with name {name} was found")


def _apply_limits(store: Store, key: Key, pod: Object) -> None:
    for item in _limit_items(store, key[2]):
        for index, container in enumerate(pod["spec"]["containers"]):
            resources = container.setdefault("resources", {})
            requests = dict(resources.get("requests") or {})
            limits = {**(item.get("default") or {}), **(resources.get("limits") or {})}
            requests = {**(item.get("defaultRequest") or {}), **requests}
            resources |= {"limits": limits, "requests": requests}
            _require_below_limits(key, index, requests, limits)
            for name, most in (item.get("max") or {}).items():
                if name in limits and amount(limits[name]) > amount(most):
                    text = f"maximum {name} usage per Container is {most}, but limit is"
                    raise _forbidden(key, f"{text} {limits[name]}")


def _require_below_limits(
    key: Key, index: int, requests: Mapping[str, str], limits: Mapping[str, str]
) -> None:
    for name, value in requests.items():
        if name in limits and amount(value) > amount(limits[name]):
            text = f"must be less than or equal to {name} limit of {limits[name]}"
            field = f"spec.containers[{index}].resources.requests"
            raise invalid("Pod", key[3], (field, f'Invalid value: "{value}": {text}'))


def _limit_items(store: Store, namespace: str) -> Iterator[Object]:
    for limits in store.of_kind("LimitRange"):
        if limits["metadata"]["namespace"] == namespace:
            yield from (item for item in limits["spec"]["limits"] if item["type"] == "Container")


def _require_quota(store: Store, key: Key, manifest: Object) -> None:
    """Raises ApiError if the object does not fit into a quota of its namespace."""
    for quota in store.of_kind("ResourceQuota"):
        if quota["metadata"]["namespace"] != key[2]:
            continue
        hard = {name: str(value) for name, value in quota["spec"]["hard"].items()}
        name = quota["metadata"]["name"]
        if key[1] == "pods":
            _require_resources(key, manifest, name, hard)
        used = {limit: _used(store, key[2], limit) for limit in hard}
        asked = {limit: _counted(key, manifest, limit) for limit in hard}
        over = [n for n, most in hard.items() if asked[n] and used[n] + asked[n] > amount(most)]
        if over:
            sums = ",".join(f"{n}={asked[n]:g}" for n in over)
            there = ",".join(f"{n}={used[n]:g}" for n in over)
            most = ",".join(f"{n}={hard[n]}" for n in over)
            text = f"exceeded quota: {name}, requested: {sums}, used: {there}, limited: {most}"
            raise _forbidden(key, text)


def _require_resources(key: Key, pod: Object, quota: str, hard: Mapping[str, str]) -> None:
    """A quota of CPU or memory requires every container to state them."""
    missing: dict[str, list[str]] = {}
    for limit in sorted(hard):
        kind, _, resource = limit.partition(".")
        if kind not in ("requests", "limits") or resource not in ("cpu", "memory"):
            continue
        for container in pod["spec"]["containers"]:
            if resource not in _resources(container, kind):
                missing.setdefault(limit, []).append(container["name"])
    if missing:
        text = "; ".join(f"{limit} for: {','.join(names)}" for limit, names in missing.items())
        raise _forbidden(key, f"failed quota: {quota}: must specify {text}")


def _resources(container: Object, kind: str) -> Object:
    """The container's requests, which default to its limits, or its limits."""
    resources = container.get("resources") or {}
    limits = resources.get("limits") or {}
    return {**limits, **(resources.get("requests") or {})} if kind == "requests" else limits


def _used(store: Store, namespace: str, limit: str) -> float:
    existing = [(k, o) for k, o in store.objects.items() if k[2] == namespace]
    return sum(_counted(k, o, limit) for k, o in existing)


def _counted(key: Key, manifest: Object, limit: str) -> float:
    """What the object uses of the limit."""
    if limit in ("pods", f"count/{key[1]}"):
        return float(key[1] == limit.removeprefix("count/"))
    if limit.startswith("count/"):
        group = key[0].rpartition("/")[0]
        return float(limit == f"count/{key[1]}.{group}")
    if key[1] != "pods":
        return 0.0
    kind, _, resource = limit.partition(".")
    containers = manifest["spec"]["containers"]
    return sum(amount(_resources(c, kind).get(resource, 0)) for c in containers)


def amount(text: Any) -> float:
    """A Kubernetes quantity, which is valid, as a number."""
    number = quantity(text)
    assert number is not None, text
    return float(number)


def violations(pod: Object, level: str) -> Iterator[str]:
    """The controls of a Pod Security Standard that the pod violates, in the order of the text."""
    containers = [*pod.get("initContainers", ()), *pod["containers"]]
    if level not in ("baseline", "restricted"):
        return
    yield from _host_namespaces(pod)
    for container in containers:
        if _security(container).get("privileged"):
            yield f"privileged ({_named(container)} must not set securityContext.privileged=true)"
    if level == "baseline":
        yield from _added_capabilities(containers)
        return
    yield from _restricted(pod, containers)


def _host_namespaces(pod: Object) -> Iterator[str]:
    names = [n for n in ("hostNetwork", "hostPID", "hostIPC") if pod.get(n)]
    if names:
        yield f"host namespaces ({', '.join(f'{n}=true' for n in names)})"
    if paths := [v["name"] for v in pod.get("volumes", ()) if "hostPath" in v]:
        text = "volume" if len(paths) == 1 else "volumes"
        yield f"hostPath volumes ({text} {', '.join(_quoted(paths))})"


def _added_capabilities(containers: list[Object]) -> Iterator[str]:
    for container in containers:
        added = _security(container).get("capabilities", {}).get("add", ())
        if extra := [c for c in added if c not in CAPABILITIES]:
            text = f"{_named(container)} must not include {', '.join(_quoted(extra))}"
            yield f"non-default capabilities ({text} in securityContext.capabilities.add)"


def _restricted(pod: Object, containers: list[Object]) -> Iterator[str]:
    of_pod = pod.get("securityContext") or {}
    escalating = [
        c for c in containers if _security(c).get("allowPrivilegeEscalation") is not False
    ]
    if escalating:
        text = "must set securityContext.allowPrivilegeEscalation=false"
        yield f"allowPrivilegeEscalation != false ({_all_named(escalating)} {text})"
    if problems := "; ".join(_capabilities(containers)):
        yield f"unrestricted capabilities ({problems})"
    roots = [c for c in containers if not _security(c).get("runAsNonRoot")]
    if roots and not of_pod.get("runAsNonRoot"):
        text = "must set securityContext.runAsNonRoot=true"
        yield f"runAsNonRoot != true (pod or {_all_named(roots)} {text})"
    as_root = [c for c in containers if _security(c).get("runAsUser") == 0]
    if of_pod.get("runAsUser") == 0:
        yield "runAsUser=0 (pod must not set runAsUser=0)"
    elif as_root:
        yield f"runAsUser=0 ({_all_named(as_root)} must not set runAsUser=0)"
    unconfined = [c for c in containers if "seccompProfile" not in _security(c)]
    if unconfined and "seccompProfile" not in of_pod:
        text = 'must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"'
        yield f"seccompProfile (pod or {_all_named(unconfined)} {text})"


def _capabilities(containers: list[Object]) -> Iterator[str]:
    capabilities = {c["name"]: _security(c).get("capabilities") or {} for c in containers}
    keeping = [c for c in containers if "ALL" not in capabilities[c["name"]].get("drop", ())]
    if keeping:
        yield f'{_all_named(keeping)} must set securityContext.capabilities.drop=["ALL"]'
    for container in containers:
        added = capabilities[container["name"]].get("add", ())
        if extra := [c for c in added if c != "NET_BIND_SERVICE"]:
            text = f"must not include {', '.join(_quoted(extra))}"
            yield f"{_named(container)} {text} in securityContext.capabilities.add"


def _security(container: Object) -> Object:
    return container.get("securityContext") or {}


def _named(container: Object) -> str:
    return f'container "{container["name"]}"'


def _all_named(containers: list[Object]) -> str:
    names = _quoted([c["name"] for c in containers])
    return f"container{'s' if names[1:] else ''} {', '.join(names)}"


def _quoted(names: list[str]) -> list[str]:
    return [f'"{name}"' for name in names]


def _forbidden(key: Key, message: str, causes: list[Object] | None = None) -> ApiError:
    text = f'{resource(key)} "{key[3]}" is forbidden: {message}'
    return ApiError(403, "Forbidden", text, details(key) | ({"causes": causes} if causes else {}))
