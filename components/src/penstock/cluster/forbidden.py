"""How a missing right is named in a message. Pure."""

from __future__ import annotations

from penstock.files import in_repository

ROLES = in_repository("k8s/rbac")


def grant(right: str) -> str:
    """The fix of a missing right, such as "list secrets"."""
    return f"Grant the kubeconfig's user permission to {right}: roles are in {ROLES}."


def resource_of(path: str) -> str:
    """What the path of a request is about, such as pods/eviction: no namespace and no name."""
    parts = path.partition("?")[0].split("/")[3 if path.startswith("/api/") else 4 :]
    if parts[0] == "namespaces" and len(parts) > 2:
        parts = parts[2:]
    return "/".join([parts[0], *parts[2:]])
