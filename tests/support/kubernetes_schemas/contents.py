"""What an API server refuses in an object of a built-in kind, beyond its schema.

The rules follow pkg/apis/*/validation of Kubernetes and its recorded responses in
../shared/real-cluster; the places are those of the API server.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.support.kubernetes_schemas.every_field import matches
from tests.support.kubernetes_schemas.pods import (
    number_problems,
    pod_problems,
    port_name_fault,
    quantity_problems,
    refused_problems,
    templates,
)
from tests.support.kubernetes_schemas.structure import MISSING
from tests.support.kubernetes_schemas.syntax import (
    LABEL_1123,
    QUALIFIED,
    SUBDOMAIN,
    Problem,
    label_problems,
    name_fault,
    quantity,
    under,
)

Manifest = Mapping[str, Any]
WORKLOADS = ("DaemonSet", "Deployment", "ReplicaSet", "StatefulSet")
RESTARTS = {**dict.fromkeys(WORKLOADS, ("Always",)), "Job": ("OnFailure", "Never")}
KEYS_OF_SECRETS = {
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}
METRICS = ("ContainerResource", "External", "Object", "Pods", "Resource")
LONGEST_WINDOW_S = 3600
PERCENT = re.compile(r"[0-9]+%")


def content_problems(manifest: Manifest) -> Iterator[Problem]:
    """The types are correct."""
    kind, spec = manifest["kind"], manifest.get("spec") or {}
    claims = spec.get("volumeClaimTemplates") or () if kind == "StatefulSet" else ()
    for template in templates(manifest):
        yield from refused_problems(template, volumes=_claimed(manifest))
        restart = template.spec.get("restartPolicy")
        allowed = RESTARTS.get(kind)
        if allowed and (restart or "Always") not in allowed:
            where = under(template.place, "spec", "restartPolicy")
            yield where, f"must be {' or '.join(allowed)}, is {restart}"
    if kind in WORKLOADS:
        yield from _own_selector(spec)
    for index, claim in enumerate(claims):
        yield from _claim(claim["spec"], under("spec.volumeClaimTemplates", index) + ".spec")
    if kind in OF_KIND:
        yield from OF_KIND[kind](manifest)


def unnoticed_problems(manifest: Manifest) -> Iterator[Problem]:
    """What an API server accepts although it is broken: repeated variables, unknown ports."""
    for template in templates(manifest):
        yield from pod_problems(template, volumes=_claimed(manifest))


def _claimed(manifest: Manifest) -> set[str]:
    """The volumes that a StatefulSet adds to its pods."""
    claims = (manifest.get("spec") or {}).get("volumeClaimTemplates") or ()
    return {claim["metadata"]["name"] for claim in claims}


def _own_selector(spec: Manifest) -> Iterator[Problem]:
    selector = spec.get("selector") or {}
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    if not (selector.get("matchLabels") or selector.get("matchExpressions")):
        yield "spec.selector", "selects nothing"
    elif not matches(selector, labels):
        yield "spec.template.metadata.labels", f"the selector does not match {dict(labels)}"


def _deployment(manifest: Manifest) -> Iterator[Problem]:
    spec = manifest["spec"]
    strategy = spec.get("strategy") or {}
    rolling = strategy.get("rollingUpdate")
    if rolling is not None and strategy.get("type") == "Recreate":
        yield "spec.strategy.rollingUpdate", "may not be specified with Recreate"
        return
    for field in ("maxSurge", "maxUnavailable"):
        where = f"spec.strategy.rollingUpdate.{field}"
        yield from _amount((rolling or {}).get(field), where, is_part=field == "maxUnavailable")
    both = [str((rolling or {}).get(field)) for field in ("maxSurge", "maxUnavailable")]
    if {*both} <= {"0", "0%"}:
        yield "spec.strategy.rollingUpdate.maxUnavailable", "may not be 0 when maxSurge is 0"
    deadline = spec.get("progressDeadlineSeconds")
    if deadline is not None and deadline <= spec.get("minReadySeconds", 0):
        yield "spec.progressDeadlineSeconds", "must be greater than minReadySeconds"


def _amount(value: Any, place: str, *, is_part: bool) -> Iterator[Problem]:
    """A number of pods or a percentage; ``is_part``: of at most 100%."""
    if is_part and PERCENT.fullmatch(str(value)) and int(value[:-1]) > 100:
        yield place, "must not be greater than 100%"
    elif isinstance(value, str) and not PERCENT.fullmatch(value):
        yield place, f"{value!r} is not a percentage"
    elif isinstance(value, int) and value < 0:
        yield place, "must be greater than or equal to 0"


def _claim(spec: Manifest, place: str) -> Iterator[Problem]:
    if not spec.get("accessModes"):
        yield f"{place}.accessModes", MISSING
    size = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    where = f"{place}.resources[storage]"
    if size is None:
        yield where, MISSING
    elif not (faults := list(quantity_problems(size, where))) and quantity(size) == 0:
        yield where, "must be greater than zero"
    else:
        yield from faults
    if (name := spec.get("storageClassName")) and (fault := name_fault(name, SUBDOMAIN, 253)):
        yield f"{place}.storageClassName", fault


def _service(manifest: Manifest) -> Iterator[Problem]:
    spec = manifest.get("spec") or {}
    ports = spec.get("ports") or []
    if not ports and spec.get("type") != "ExternalName" and spec.get("clusterIP") != "None":
        yield "spec.ports", MISSING
    kind, address = spec.get("type", "ClusterIP"), spec.get("clusterIP")
    if address not in (None, "", "None") and not is_address(address):
        yield "spec.clusterIPs[0]", "must be a valid IP address"
    if kind == "ExternalName" and not spec.get("externalName"):
        yield "spec.externalName", MISSING
    if kind == "ClusterIP" and spec.get("externalTrafficPolicy"):
        yield "spec.externalTrafficPolicy", "may only be set for externally-accessible services"
    names = [port.get("name") for port in ports]
    numbers = [(port.get("port"), port.get("protocol", "TCP")) for port in ports]
    yield from label_problems(spec.get("selector"), "spec.selector")
    for index, port in enumerate(ports):
        where, name = under("spec.ports", index), port.get("name")
        if name is None and len(ports) > 1:
            yield f"{where}.name", "one of several ports needs a name"
        if name is not None and (fault := name_fault(name, LABEL_1123, 63)):
            yield f"{where}.name", f"port name {fault}"
        if name is not None and name in names[:index]:
            yield f"{where}.name", f"second port {name}"
        if kind == "ClusterIP" and port.get("nodePort"):
            yield f"{where}.nodePort", "may not be used with ClusterIP"
        if numbers[index] in numbers[:index]:
            yield where, "Duplicate value"
        yield from number_problems(port.get("port"), f"{where}.port")
        target = port.get("targetPort")
        if isinstance(target, str) and (fault := port_name_fault(target)):
            yield f"{where}.targetPort", f"port name {fault}"


def _network_policy(manifest: Manifest) -> Iterator[Problem]:
    spec = manifest.get("spec") or {}
    for direction, peers in (("ingress", "from"), ("egress", "to")):
        for index, rule in enumerate(spec.get(direction) or ()):
            place = under("spec", direction, index)
            for number, port in enumerate(rule.get("ports") or ()):
                yield from _policy_port(port, under(place, "ports", number))
            for number, peer in enumerate(rule.get(peers) or ()):
                yield from _peer(peer, under(place, peers, number))


def _policy_port(port: Manifest, place: str) -> Iterator[Problem]:
    number = port.get("port")
    if isinstance(number, str) and (fault := port_name_fault(number)):
        yield f"{place}.port", f"port name {fault}"
    elif isinstance(number, int):
        yield from number_problems(number, f"{place}.port")
        if port.get("endPort", number) < number:
            yield f"{place}.endPort", "must be greater than or equal to port"


def _peer(peer: Manifest, place: str) -> Iterator[Problem]:
    block = peer.get("ipBlock")
    if not peer:
        yield place, "must specify a peer"
    if block is None:
        return
    if len(peer) > 1:
        yield place, "may not specify both ipBlock and another peer"
    try:
        network = ipaddress.ip_network(str(block.get("cidr")))
    except ValueError:
        network = None
    if network is None or "/" not in block["cidr"]:
        yield f"{place}.ipBlock.cidr", "must be a valid CIDR value"
        return
    for index, inner in enumerate(block.get("except") or ()):
        where = under(f"{place}.ipBlock.except", index)
        try:
            is_inside = ipaddress.ip_network(inner).subnet_of(network)  # type: ignore[arg-type]
        except (ValueError, TypeError):
            is_inside = False
        if not is_inside:
            yield where, "must be a strict subset of cidr"


def _budget(manifest: Manifest) -> Iterator[Problem]:
    spec = manifest.get("spec") or {}
    if {"minAvailable", "maxUnavailable"} <= spec.keys():
        yield "spec", "minAvailable and maxUnavailable exclude each other"
    for field in ("minAvailable", "maxUnavailable"):
        yield from _amount(spec.get(field), f"spec.{field}", is_part=True)


def _autoscaler(manifest: Manifest) -> Iterator[Problem]:
    spec = manifest["spec"]
    least, most = spec.get("minReplicas", 1), spec["maxReplicas"]
    metrics = spec.get("metrics") or ()
    if least < 1:
        yield "spec.minReplicas", "must be greater than or equal to 1"
        if not any(m["type"] in ("External", "Object") for m in metrics):
            yield "spec.metrics", "scaling to zero needs an Object or External metric"
    if most < max(1, least):
        yield "spec.maxReplicas", "must be greater than or equal to minReplicas"
    for field in ("kind", "name"):
        if not spec["scaleTargetRef"].get(field):
            yield f"spec.scaleTargetRef.{field}", MISSING
    for direction, rules in (spec.get("behavior") or {}).items():
        place = f"spec.behavior.{direction}"
        if (rules.get("stabilizationWindowSeconds") or 0) > LONGEST_WINDOW_S:
            text = f"must be less than or equal to {LONGEST_WINDOW_S}"
            yield f"{place}.stabilizationWindowSeconds", text
        for index, policy in enumerate(rules.get("policies") or ()):
            for field in ("periodSeconds", "value"):
                if policy.get(field, 1) < 1:
                    yield under(f"{place}.policies", index) + f".{field}", "must be greater than 0"
    for index, metric in enumerate(metrics):
        if metric["type"] not in METRICS:
            yield under("spec.metrics", index) + ".type", f"{metric['type']!r} is not a metric"
            continue
        kind = metric["type"][:1].lower() + metric["type"][1:]
        where = under("spec.metrics", index, kind)
        if kind not in metric:
            yield where, MISSING
            continue
        target = metric[kind].get("target") or {}
        values = [k for k in ("averageUtilization", "averageValue", "value") if k in target]
        if not values:
            yield f"{where}.target.averageUtilization", MISSING
        if target.get("averageUtilization", 1) < 1:
            yield f"{where}.target.averageUtilization", "must be greater than 0"


def _role(manifest: Manifest) -> Iterator[Problem]:
    for index, rule in enumerate(manifest.get("rules") or ()):
        place = under("rules", index)
        is_of_url = bool(rule.get("nonResourceURLs"))
        for field in ("verbs", *(() if is_of_url else ("apiGroups", "resources"))):
            if not rule.get(field):
                yield f"{place}.{field}", MISSING
        if is_of_url and manifest["kind"] == "Role":
            yield f"{place}.nonResourceURLs", "namespaced rules cannot apply to non-resource URLs"


def _binding(manifest: Manifest) -> Iterator[Problem]:
    role = manifest["roleRef"]
    if role.get("apiGroup") not in ("", "rbac.authorization.k8s.io"):
        yield "roleRef.apiGroup", f"{role.get('apiGroup')!r} is not the group of RBAC"
    if role.get("kind") not in ("ClusterRole", "Role"):
        yield "roleRef.kind", f"{role.get('kind')!r} is not one of ClusterRole, Role"
    if not role.get("name"):
        yield "roleRef.name", MISSING
    for index, subject in enumerate(manifest.get("subjects") or ()):
        if subject.get("kind") not in ("Group", "ServiceAccount", "User"):
            yield under("subjects", index) + ".kind", f"{subject.get('kind')!r} is not a subject"
        if not subject.get("name"):
            yield under("subjects", index) + ".name", MISSING


def _data(manifest: Manifest) -> Iterator[Problem]:
    size, seen = 0, set()
    for field in ("binaryData", "data", "stringData"):
        for key, value in (manifest.get(field) or {}).items():
            size += len(str(value).encode())
            fault = name_fault(key.strip("._-") or key, QUALIFIED, 253)
            if fault or key in (".", "..") or len(key) > 253:
                yield f"{field}[{key}]", f"{key!r} is not a valid file name"
            if key in seen and field == "data":
                yield f"{field}[{key}]", "is in binaryData as well"
            seen.add(key)
    if size > 2**20:
        yield "data", f"{size} bytes, at most {2**20} are allowed"


def _secret(manifest: Manifest) -> Iterator[Problem]:
    yield from _data(manifest)
    there = {*(manifest.get("data") or {}), *(manifest.get("stringData") or {})}
    for key in KEYS_OF_SECRETS.get(str(manifest.get("type")), ()):
        if key not in there:
            yield f"data[{key}]", MISSING


def is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def is_base64(text: str) -> bool:
    """Of the data of a Secret, and of binary data."""
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


OF_KIND: Mapping[str, Callable[[Manifest], Iterator[Problem]]] = {
    "ClusterRole": _role,
    "ConfigMap": _data,
    "Deployment": _deployment,
    "HorizontalPodAutoscaler": _autoscaler,
    "NetworkPolicy": _network_policy,
    "PersistentVolumeClaim": lambda claim: _claim(claim["spec"], "spec"),
    "PodDisruptionBudget": _budget,
    "Role": _role,
    "RoleBinding": _binding,
    "Secret": _secret,
    "Service": _service,
}
