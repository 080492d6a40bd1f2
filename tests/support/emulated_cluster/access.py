"""Who may do what: RBAC of the emulated API server, from the roles and bindings in its store.

The texts follow the recordings in ../shared/real-cluster. Users without a known token may do
everything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tests.support.emulated_cluster.store import ApiError, Key, Object, Store

RBAC = "rbac.authorization.k8s.io/v1"
REVIEWS = "authorization.k8s.io"
ANY = "*"
CREATED_BY_ALL = ("selfsubjectaccessreviews", "selfsubjectrulesreviews")
SERVICE_ACCOUNT = "system:serviceaccount"


@dataclass(frozen=True)
class User:
    """The client of a request."""

    name: str
    groups: tuple[str, ...] = ()

    def is_subject(self, subject: Object) -> bool:
        if subject["kind"] == "Group":
            return subject["name"] in self.groups
        if subject["kind"] == "ServiceAccount":
            return self.name == f"{SERVICE_ACCOUNT}:{subject['namespace']}:{subject['name']}"
        return bool(subject["name"] == self.name)


@dataclass(frozen=True, kw_only=True)
class Action:
    """What a request does to which objects."""

    verb: str
    group: str
    resource: str
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    @property
    def what(self) -> str:
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource

    def __str__(self) -> str:
        return f"{self.verb} {self.what}" + (f".{self.group}" if self.group else "")


@dataclass
class Access:
    """Authorizes the requests of the users in ``users``, by token."""

    store: Store
    users: dict[str, User] = field(default_factory=dict)
    used: list[Action] = field(default_factory=list)  # by users of ``users``
    denied: list[Action] = field(default_factory=list)
    reviews: list[Action] = field(default_factory=list)

    def user(self, authorization: str | None) -> User | None:
        """The user of a request's header; None: unrestricted."""
        return self.users.get((authorization or "").removeprefix("Bearer "))

    def token(self, namespace: str, account: str) -> str:
        """A new token of a service account."""
        text = f"token-{len(self.users)}"
        self.users[text] = User(f"{SERVICE_ACCOUNT}:{namespace}:{account}")
        return text

    def require(self, user: User | None, action: Action) -> None:
        """Raises ApiError (403)."""
        if user is None or (action.resource in CREATED_BY_ALL and action.group == REVIEWS):
            return
        self.used.append(action)
        if self.reason(user, action) is None:
            self.denied.append(action)
            raise forbidden(user, action)

    def review(self, user: User | None, spec: Object) -> Object:
        """The status of a SelfSubjectAccessReview."""
        chosen = spec.get("resourceAttributes")
        if user is None:
            return {"allowed": True}
        if chosen is None:
            return {"allowed": False}
        names = ("verb", "group", "resource", "subresource", "namespace", "name")
        action = Action(**{"group": "", **{k: chosen[k] for k in names if k in chosen}})
        self.reviews.append(action)
        reason = self.reason(user, action)
        return {"allowed": False} if reason is None else {"allowed": True, "reason": reason}

    def reason(self, user: User, action: Action) -> str | None:
        """Why RBAC allows it; None if it does not."""
        for binding in self._bindings(action.namespace):
            role = binding["roleRef"]
            for subject in binding.get("subjects") or ():
                if user.is_subject(subject) and any(
                    _covers(rule, action) for rule in self._rules(binding)
                ):
                    where = binding["metadata"].get("namespace")
                    named = f"{binding['metadata']['name']}{f'/{where}' if where else ''}"
                    whom = subject["name"]
                    if "namespace" in subject:
                        whom += f"/{subject['namespace']}"
                    return (
                        f'RBAC: allowed by {binding["kind"]} "{named}" of {role["kind"]} '
                        f'"{role["name"]}" to {subject["kind"]} "{whom}"'
                    )
        return None

    def _bindings(self, namespace: str) -> Iterator[Object]:
        for key, binding in list(self.store.objects.items()):
            of_namespace = key[1] == "rolebindings" and namespace and key[2] == namespace
            if key[0] == RBAC and (of_namespace or key[1] == "clusterrolebindings"):
                yield binding

    def _rules(self, binding: Object) -> Sequence[Object]:
        role = binding["roleRef"]
        is_cluster = role["kind"] == "ClusterRole"
        namespace = "" if is_cluster else binding["metadata"]["namespace"]
        key = (RBAC, "clusterroles" if is_cluster else "roles", namespace, role["name"])
        return self.store.objects.get(key, {}).get("rules") or ()


def _covers(rule: Object, action: Action) -> bool:
    names = rule.get("resourceNames") or ()
    return (
        bool({ANY, action.verb} & set(rule["verbs"]))
        and bool({ANY, action.group} & set(rule.get("apiGroups") or ()))
        and bool({ANY, action.what} & set(rule.get("resources") or ()))
        and (not names or action.name in names)
    )


def forbidden(user: User, action: Action) -> ApiError:
    what = f"{action.resource}.{action.group}" if action.group else action.resource
    named = f'{what} "{action.name}"' if action.name else what
    where = f'in the namespace "{action.namespace}"' if action.namespace else "at the cluster scope"
    text = (
        f'{named} is forbidden: User "{user.name}" cannot {action.verb} resource '
        f'"{action.what}" in API group "{action.group}" {where}'
    )
    details = {"name": action.name, "group": action.group, "kind": action.resource}
    return ApiError(403, "Forbidden", text, {k: v for k, v in details.items() if v})


def split_path(path: Sequence[str]) -> tuple[str, str, str, str, str]:
    """apiVersion, namespace, plural, name and subresource; "" for what the path does not have."""
    start = {"api": 2, "apis": 3}.get(path[0] if path else "", 0)
    rest, namespace = list(path[start:]), ""
    if rest[:1] == ["namespaces"] and rest[2:]:
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource = (*rest, "", "", "")[:3]
    return "/".join(path[1:start]), namespace, plural, name, subresource


def action_of(method: str, path: Sequence[str], query: Object) -> Action | None:
    """What a request does; None for discovery, which everyone may read."""
    version, namespace, resource, name, subresource = split_path(path)
    if not version or not resource:
        return None
    if resource == "namespaces" and method == "POST":
        name = ""
    reading = "get" if name else "watch" if query.get("watch") in ("1", "true") else "list"
    verbs = {"GET": reading, "POST": "create", "PUT": "update", "PATCH": "patch"}
    verb = verbs.get(method, "delete" if name else "deletecollection")
    return Action(
        verb=verb,
        group=version.rpartition("/")[0],
        resource=resource,
        subresource=subresource,
        namespace=namespace,
        name=name,
    )


def created_by_apply(action: Action) -> Action:
    """The second right of a server-side apply of an object that does not exist."""
    return Action(**{**vars(action), "verb": "create"})


def binding_of(key: Key, body: Object, action: Action) -> Action | None:
    """The right to bind the role of a RoleBinding that is written; None for other kinds."""
    if action.verb not in ("create", "patch", "update") or key[1] != "rolebindings":
        return None
    role = body["roleRef"]
    resource = "clusterroles" if role["kind"] == "ClusterRole" else "roles"
    return Action(
        verb="bind",
        group=RBAC.partition("/")[0],
        resource=resource,
        namespace=key[2],
        name=role["name"],
    )
