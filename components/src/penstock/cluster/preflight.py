"""Ask the API server, before anything is written, whether the user has the rights that a verb uses.

With SelfSubjectAccessReviews, one per right: every authorizer answers them completely, whereas the
rules of a SelfSubjectRulesReview can be incomplete.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from penstock.cluster.api import Api
from penstock.cluster.api_errors import ForbiddenError, UnavailableError
from penstock.cluster.release import read_release
from penstock.cluster.rights import SECRETS, Need, Right, Verb, needs_of, role_for
from penstock.cluster.upgrade import rollback_revision
from penstock.cluster.wait import Clock
from penstock.cluster.workloads import Object
from penstock.errors import ClusterError, Problem
from penstock.files import page, write_details
from penstock.helm import ReleaseTarget

CONCURRENT = 8  # requests
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
# Statuses of a review itself.
REFUSED = (403, 404, 405)
CONFLICT = 409
MALFORMED = (400, 422)
ATTEMPTS, PAUSE_S = 5, 2.0
RECORDS = (Right(verb="list", resource=SECRETS), Right(verb="get", resource=SECRETS))


class NoReviewError(ClusterError):
    """The API server does not say what the user may do."""

    def __init__(self, problem: Problem, details: str = "") -> None:
        super().__init__(problem)
        self.details = details
        """The review and its answer, if penstock made the review wrong."""


def may(api: Api, right: Right, name: str = "") -> bool:
    """Whether the user has the right; ``name``: for this object.

    Raises NoReviewError, and UnavailableError for a failure that passes.
    """
    resource, _, subresource = right.resource.partition("/")
    attributes = {
        "namespace": "" if right.is_of_cluster else api.namespace,
        "verb": right.verb,
        "group": right.group,
        "resource": resource,
        "subresource": subresource,
        "name": name,
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {k: v for k, v in attributes.items() if v}},
    }
    about = {"kind": review["kind"], "metadata": {"name": str(right)}}  # for messages
    accepted = (*REFUSED, *MALFORMED, CONFLICT)
    status, answer = api.request("POST", REVIEWS, review, about, accepted)
    if status in accepted:
        text = answer.get("message") or "SelfSubjectAccessReviews are not available"
        problem = Problem(place=str(right), message=f"{status}: {text}")
        if status == CONFLICT:
            raise UnavailableError(problem)
        exchange = {"request": review, "response": answer}
        raise NoReviewError(problem, json.dumps(exchange, indent=2) if status in MALFORMED else "")
    return bool(answer["status"]["allowed"])


@dataclass
class Preflight:
    """The preflight of one verb on one release."""

    api: Api
    target: ReleaseTarget
    verb: Verb
    # For what the verb omits without an optional right.
    print_line: Callable[[str], None]
    # From the objects before and after; None: those of the verb.
    needs: Callable[[Sequence[Object], Sequence[Object]], Sequence[Need]] | None = None
    clock: Clock = field(default_factory=Clock)
    _allowed: dict[Right, bool] = field(default_factory=dict)

    def require(
        self,
        after: Sequence[Object] | None = None,
        *,
        revision: int | None = None,
        extra: Iterable[Need] = (),
    ) -> None:
        """Raises ForbiddenError with all missing rights, and UnavailableError.

        ``after``: the objects that the verb writes; None: those of ``revision`` for a rollback, or
        the released ones. ``extra``: needs of the verb's options.
        """
        for left in range(ATTEMPTS - 1, -1, -1):
            try:
                listed = (*self._needs(after, revision), *extra)
                self._review(listed)
                break
            except NoReviewError as error:
                why = error.problems[0].message
                if error.details:
                    why = f"a bug in penstock: {why}. {write_details(error.details)}"
                self.print_line(f"skipped the permission check: {why}")
                return
            except UnavailableError:
                if not left:
                    raise
                self.clock.sleep(PAUSE_S)
        self._report(listed)

    def _needs(self, after: Sequence[Object] | None, revision: int | None) -> Sequence[Need]:
        """The release is read only if the user may read its record."""
        needs = self.needs or partial(needs_of, self.verb)
        known = needs((), after or ())
        self._review(known)
        if not all(self._allowed[right] for right in RECORDS):
            return known
        release = read_release(self.target)
        before = release.objects if release else ()
        if after is None and release is not None:
            after = before
            if self.verb is Verb.ROLLBACK:
                number = rollback_revision(self.target, revision)
                old = read_release(self.target, number)
                after = old.objects if old else ()
        return needs(before, after or ())

    def _review(self, needs: Sequence[Need]) -> None:
        """Ask for what is not known yet. A role may allow a verb for single objects only, so what
        is denied is asked again for each of them."""
        new = [need for need in needs if need.right not in self._allowed]
        with ThreadPoolExecutor(CONCURRENT) as pool:
            answers = list(pool.map(lambda need: may(self.api, need.right), new))
            denied = [need for need, is_allowed in zip(new, answers, strict=True) if not is_allowed]
            by_name = list(pool.map(self._may_each, denied))
        self._allowed |= {n.right: is_allowed for n, is_allowed in zip(new, answers, strict=True)}
        self._allowed |= {
            n.right: is_allowed for n, is_allowed in zip(denied, by_name, strict=True)
        }

    def _may_each(self, need: Need) -> bool:
        names = sorted(need.names)
        return bool(names) and all(may(self.api, need.right, name) for name in names)

    def _report(self, needs: Sequence[Need]) -> None:
        missing = [need for need in needs if not self._allowed[need.right]]
        for need in missing:
            if not need.is_required:
                self.print_line(f"missing permission: {need.right}: {need.loss}")
        required = [need.right for need in missing if need.is_required]
        if required:
            raise ForbiddenError(_missing(self.verb, self.target, required))


def _missing(verb: Verb, target: ReleaseTarget, rights: Sequence[Right]) -> Problem:
    of_namespace = [right for right in rights if not right.is_of_cluster]
    of_cluster = [right for right in rights if right.is_of_cluster]
    parts, files = [], []
    if of_namespace:
        parts.append(f"in the namespace {target.namespace}: {by_resource(of_namespace)}")
        files.append(f"{role_for(verb).name}.yaml")
    if of_cluster:
        parts.append(f"in the whole cluster: {by_resource(of_cluster)}")
        files.append("drain.yaml")
    commands = " and ".join(f"`kubectl apply -n {target.namespace} -f k8s/rbac/{f}`" for f in files)
    return Problem(
        place=f"release {target}",
        message=f"{verb} requires permissions that you do not have {'; '.join(parts)}. "
        "Nothing was changed",
        fix=f"Ask an administrator to run {commands} in a checkout of penstock and to bind the "
        f"role to you: see {page('cluster')}.",
    )


def by_resource(rights: Iterable[Right]) -> str:
    """Such as `secrets (create, update), pods/log (get)`."""
    verbs: dict[str, list[str]] = {}
    for right in sorted(rights):
        verbs.setdefault(right.what, []).append(right.verb)
    return ", ".join(f"{what} ({', '.join(names)})" for what, names in verbs.items())
