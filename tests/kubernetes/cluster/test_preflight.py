"""The preflight names exactly the missing rights; the roles grant exactly what the verbs use."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator, Sequence
from itertools import repeat
from pathlib import Path

import pytest
import yaml

from penstock.cluster import rights, workloads
from penstock.cluster.api import Api
from penstock.cluster.api_errors import ForbiddenError
from penstock.cluster.release import require_release
from penstock.cluster.rights import Need, Preflight, Right, Role, Verb, by_resource, needs_of
from penstock.errors import ClusterError
from penstock.graph.generate import stale
from penstock.graph.load import load_graph
from penstock.helm import ReleaseTarget
from penstock.manifests.source import render_graph
from tests.support.charts import ROOT
from tests.support.emulated_cluster.access import Access, Action, User
from tests.support.emulated_cluster.released import NAME, Cluster
from tests.support.emulated_cluster.roles import as_role, role_file
from tests.support.emulated_cluster.store import ApiError, Object, Store

REVIEWS = "selfsubjectaccessreviews"
WRITES = {
    Verb.APPLY: ("apply", "--yes"),
    Verb.ROLLBACK: ("rollback", "1", "--yes"),
    Verb.SCALE: ("scale", "decode=2", "--cluster", "--yes"),
    Verb.UNINSTALL: ("uninstall", "--yes"),
}


def rules_of(listed: Sequence[Right]) -> list[Object]:
    return [
        {"apiGroups": [r.group], "resources": [r.resource], "verbs": [r.verb]}
        for r in listed
        if not r.is_of_cluster
    ]


def needs(verb: Verb, secured: Cluster) -> tuple[Need, ...]:
    target = ReleaseTarget(name=NAME, namespace="default", kubeconfig=secured.kubeconfig)
    released = require_release(target).objects
    return needs_of(verb, released, () if verb is Verb.UNINSTALL else released)


@pytest.mark.program
@pytest.mark.parametrize("verb", WRITES)
def test_each_missing_right_is_named_before_anything_is_written(
    verb: Verb, secured: Cluster
) -> None:
    user = as_role(secured, "default", "tester", [])
    secured.operator.stop()
    key = ("rbac.authorization.k8s.io/v1", "roles", "default", "tester")
    target = ReleaseTarget(name=NAME, namespace="default", kubeconfig=user.kubeconfig)
    released = require_release(
        ReleaseTarget(name=NAME, namespace="default", kubeconfig=secured.kubeconfig)
    ).objects
    all_needs = needs(verb, secured)
    assert len(all_needs) >= 12
    for missing in all_needs:
        rest = [need.right for need in all_needs if need != missing]
        secured.api.store.objects[key]["rules"] = rules_of(rest)
        version = secured.api.store.version
        printed: list[str] = []
        before_writes = Preflight(Api.connect(target), target, verb, printed.append)
        after = () if verb is Verb.UNINSTALL else released
        if missing.is_required:
            with pytest.raises(ForbiddenError) as error:
                before_writes.require(after)
            assert f": {by_resource([missing.right])}. Nothing was changed" in str(error.value)
        else:
            before_writes.require(after)
            assert printed == [f"missing permission: {missing.right}: {missing.loss}"]
        assert secured.api.store.version == version


@pytest.mark.program
@pytest.mark.parametrize("verb", WRITES)
def test_a_verb_with_exactly_its_rights_is_denied_nothing(verb: Verb, secured: Cluster) -> None:
    secured.edit(decode={"replicas": 2})
    if verb is Verb.ROLLBACK:
        assert secured.apply()[0] == 0
    granted = [need.right for need in needs(verb, secured)]
    if verb is Verb.ROLLBACK:  # the first revision has no disruption budget for decode
        granted.append(Right(group="policy", resource="poddisruptionbudgets", verb="delete"))
    user = as_role(secured, "default", "tester", rules_of(granted))
    assert "missing permission" not in user.expect(0, *WRITES[verb])
    assert secured.api.access.denied == []


@pytest.mark.program
def test_all_missing_rights_are_in_one_message(secured: Cluster) -> None:
    """Also those that follow from the release, whose removed PodDisruptionBudget is deleted."""
    rules = [
        {"apiGroups": [""], "resources": ["secrets", "configmaps"], "verbs": ["get", "list"]},
        {"apiGroups": ["nvidia.com"], "resources": ["*"], "verbs": ["get"]},
    ]
    user = as_role(secured, "default", "tester", rules)
    secured.edit(decode={"replicas": 1}, prefill={"replicas": 1})
    secured.operator.stop()
    before = secured.api.store.version
    output = user.expect(ClusterError, "apply", "--yes")
    assert secured.api.store.version == before
    assert "configmaps (create, patch), secrets (create, delete, update), " in output
    assert "dynamographdeployments.nvidia.com (create, patch), " in output
    assert "poddisruptionbudgets.policy (delete, get)" in output
    assert "missing permission: list events: warnings of the cluster are not shown" in output


@pytest.mark.program
def test_a_right_for_single_objects_suffices(secured: Cluster) -> None:
    granted = [need.right for need in needs(Verb.APPLY, secured)]
    graphs = [r for r in granted if r.resource == "dynamographdeployments" and r.verb != "create"]
    rules = rules_of([right for right in granted if right not in graphs])
    rules += [{**rule, "resourceNames": [NAME]} for rule in rules_of(graphs)]
    user = as_role(secured, "default", "tester", rules)
    secured.edit(decode={"replicas": 2})
    user.expect(0, "apply", "--yes")


@pytest.mark.program
def test_4_without_list_secrets_every_verb_names_the_right(secured: Cluster) -> None:
    user = as_role(secured, "default", "tester", [])
    for verb in (("diff",), ("status", "--cluster"), ("history",), *WRITES.values()):
        output = user.expect(ClusterError, *verb)
        assert "permission to list secrets" in output or "get, list" in output, output
        assert "k8s/rbac" in output


@pytest.mark.program
def test_4_without_update_of_secrets_no_release_stays_pending(secured: Cluster) -> None:
    granted = [need.right for need in needs(Verb.APPLY, secured)]
    rules = rules_of([r for r in granted if (r.resource, r.verb) != ("secrets", "update")])
    user = as_role(secured, "default", "tester", rules)
    secured.edit(decode={"replicas": 2})
    output = user.expect(ClusterError, "apply", "--yes")
    assert "in the namespace default: secrets (update). Nothing was changed" in output
    output = secured.run("history")[1]
    assert "pending" not in output
    assert secured.replicas()["decode"] == 1


@pytest.mark.program
def test_status_and_diff_say_what_they_omit(secured: Cluster) -> None:
    """A viewer who may read neither disruption budgets nor pods nor events."""
    rules = [
        {"apiGroups": [""], "resources": ["secrets", "configmaps"], "verbs": ["get", "list"]},
        {"apiGroups": ["nvidia.com"], "resources": ["*"], "verbs": ["get"]},
    ]
    user = as_role(secured, "default", "tester", rules)
    output = user.expect(0, "status", "--cluster")
    assert 'not shown: Pod default/*: 403: pods is forbidden: User "system:service' in output
    assert "not shown: PodDisruptionBudget default/quick-prefill: 403" in output
    output = user.expect(0, "diff")
    assert "drift not checked: PodDisruptionBudget default/quick-prefill: 403" in output
    assert "dry run not possible for 4 objects: ConfigMap default/quick-" in output
    assert "patch configmaps, dynamographdeployments, poddisruptionbudgets" in output
    output = user.run("diff", "--json")[1]
    assert json.loads(output)["drift_not_checked"]


def applied(cluster: Cluster, errors: Iterator[ApiError]) -> tuple[int, str]:
    """An edit is applied while each review gets the next error, until there are none left."""

    def fail(path: str) -> None:
        if path.endswith(REVIEWS) and (error := next(errors, None)):
            raise error

    cluster.api.gate = fail
    cluster.edit(decode={"replicas": 2})
    return cluster.apply()


@pytest.mark.parametrize("code", [403, 404])
def test_a_server_that_answers_no_reviews_does_not_block(code: int, installed: Cluster) -> None:
    error = ApiError(code, "Forbidden", "no reviews here")
    exit_code, output = applied(installed, repeat(error))
    assert exit_code == 0, output
    assert output.count("skipped the permission check: ") == 1
    assert "no reviews here" in output


@pytest.mark.parametrize("code", [409, 429, 503])
def test_a_failure_of_a_review_that_passes_is_retried(code: int, installed: Cluster) -> None:
    error = ApiError(code, "", "wait a moment")
    exit_code, output = applied(installed, repeat(error, 3))
    assert exit_code == 0, output
    assert "permission check" not in output


@pytest.mark.parametrize(
    ("code", "words"),
    [(401, "Renew the credentials"), (429, "limits the requests"), (503, "wait a moment")],
)
def test_a_review_that_fails_each_time_stops_before_the_write(
    code: int, words: str, installed: Cluster
) -> None:
    error = ApiError(code, "", "wait a moment")
    exit_code, output = applied(installed, repeat(error))
    assert exit_code == ClusterError.exit_code
    assert words in output
    assert installed.replicas()["decode"] == 1


@pytest.mark.parametrize("code", [400, 422])
def test_a_malformed_review_is_a_fault_of_penstock_and_the_verb_goes_on(
    code: int, installed: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    error = ApiError(code, "Invalid", "metadata: must be empty")
    exit_code, output = applied(installed, repeat(error))
    assert exit_code == 0, output
    note = re.search(r"skipped the permission check: a bug in penstock: (.*) Details: (.*)", output)
    assert note
    assert note[1] == f"{code}: metadata: must be empty."
    log = Path(note[2])
    assert json.loads(log.read_text())["request"]["spec"]["resourceAttributes"]
    assert list(tmp_path.glob("penstock-error-*")) == [log], "one for all reviews"


EVERYTHING = [rights.any_object(kind) for kind in workloads.CHART_KINDS]


@pytest.mark.parametrize("role", rights.ROLES, ids=lambda role: role.name)
def test_the_roles_of_k8s_allow_their_verbs_for_every_kind(role: Role) -> None:
    store = Store()
    group = "rbac.authorization.k8s.io/v1"
    manifest = role_file(role.name)
    named = {"name": manifest["metadata"]["name"], "kind": "Role"}
    binding = {"roleRef": named, "subjects": [{"kind": "User", "name": "me"}], "kind": ""}
    store.write((group, "roles", "ns", named["name"]), manifest)
    store.write((group, "rolebindings", "ns", "binding"), binding)
    access = Access(store)
    for verb in Verb:
        all_needs = [*needs_of(verb, EVERYTHING, ()), *needs_of(verb, (), EVERYTHING)]
        missing = [n.right for n in all_needs if not is_allowed(access, n.right)]
        missing = [right for right in missing if right.verb != rights.BIND]
        assert (missing == []) == (verb in role.verbs), (verb, missing)


def is_allowed(access: Access, right: Right) -> bool:
    resource, _, subresource = right.resource.partition("/")
    action = Action(
        verb=right.verb,
        group=right.group,
        resource=resource,
        subresource=subresource,
        namespace="ns",
    )
    return access.reason(User("me"), action) is not None


def test_the_roles_are_fresh() -> None:
    assert stale(rights.role_files(), ROOT) == [], "run `make generate`"
    files = {path.name for path in (ROOT / "k8s" / "rbac").glob("*.yaml")}
    assert files == {Path(name).name for name in rights.role_files()}


def test_the_table_knows_every_kind_of_the_chart() -> None:
    rendered: set[str] = set()
    for path in (ROOT / "helm" / "penstock" / "templates").iterdir():
        if path.suffix not in (".yaml", ".tpl"):
            continue
        rendered |= set(re.findall(r"^kind: (\w+)$", path.read_text(), re.MULTILINE))
    assert rendered == set(workloads.CHART_KINDS)
    graph = load_graph(ROOT / "dynamo_graphs" / "quickstart-simulated.yaml")
    for manifest in render_graph(graph).objects:
        group = manifest["apiVersion"].rpartition("/")[0]
        assert workloads.CHART_KINDS[manifest["kind"]] == group


def test_no_role_can_bind_roles() -> None:
    for path in (ROOT / "k8s" / "rbac").glob("*.yaml"):
        verbs = {v for rule in yaml.safe_load(path.read_text())["rules"] for v in rule["verbs"]}
        assert not verbs & {"bind", "escalate", "impersonate", "*"}
