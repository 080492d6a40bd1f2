"""Diagnoses from the status and events that the kubelet and Dynamo's operator write."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.cluster.diagnose import Diagnosis, diagnose
from penstock.cluster.progress import Observation, progress_of

Object = dict[str, Any]
IMAGE = {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}


def pod(
    *, ready: bool = False, labels: Object | None = None, main: Object | None = None, **status: Any
) -> Object:
    main = {"name": "main", "ready": ready, "restartCount": 0, **(main or {})}
    conditions = [{"type": "Ready", "status": str(ready)}, *status.pop("conditions", [])]
    metadata = {"name": "g-decode-1", "uid": "u1"}
    return {
        "metadata": {**metadata, "labels": {"penstock/component": "decode", **(labels or {})}},
        "spec": {"containers": [{"name": "main"}]},
        "status": {"containerStatuses": [main], "conditions": conditions, **status},
    }


def scheduling(reason: str, message: str) -> Object:
    condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    return pod(conditions=[condition])


def event(reason: str, kind: str = "Pod", name: str = "g-decode-1", **more: Any) -> Object:
    regarding = {"kind": kind, "name": name}
    content = {"type": "Warning", "reason": reason, "message": f"message of {reason}"}
    return {**content, "involvedObject": regarding, **more}


def texts(pods: list[Object], events: list[Object] | None = None, **more: Any) -> list[str]:
    return [str(t) for t in diagnose(pods, events or [], **more)]


def test_a_ready_pod_that_restarted_once_has_no_problem() -> None:
    ended = {"lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}
    assert texts([pod(ready=True, main={**ended, "restartCount": 1})]) == []


def test_a_killed_container_is_reported_and_permanent_after_repeated_restarts() -> None:
    ended = {"lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}
    (once,) = diagnose([pod(main={**ended, "restartCount": 1})], [])
    (often,) = diagnose([pod(main={**ended, "restartCount": 3})], [])
    assert str(once) == "decode: exited: exit code 137 (OOMKilled), 1 restarts"
    assert (once.is_permanent, often.is_permanent) == (False, True)
    assert often.problem == "keeps crashing"


@pytest.mark.parametrize(
    ("probe", "suffix", "waits"),
    [
        ({"exec": {"command": ["python3"]}}, "new", True),
        ({"exec": {"command": ["python3"]}}, "old", False),
        ({"httpGet": {"path": "/health"}}, "new", False),  # with the operator
    ],
)
def test_new_workers_wait_for_those_of_another_pool(
    probe: Object, suffix: str, waits: bool
) -> None:
    def worker(base: Object, component: str, suffix: str) -> Object:
        names = {"DYN_NAMESPACE": "n", "DYN_NAMESPACE_WORKER_SUFFIX": suffix}
        env = [{"name": name, "value": value} for name, value in names.items()]
        main = {"name": "main", "env": env, "readinessProbe": probe}
        labels = {**base["metadata"]["labels"], "penstock/component": component}
        return {
            **base,
            "metadata": {**base["metadata"], "name": component, "labels": labels},
            "spec": {"containers": [main]},
        }

    running = worker(pod(main={"state": {"running": {}}}), "decode", "new")
    pending = worker(scheduling("Unschedulable", "no GPU"), "prefill", suffix)
    found = texts([running, pending])
    assert "prefill: unschedulable: no GPU" in found
    assert any(text.startswith("decode: waits for prefill: ") for text in found) is waits


def test_a_quota_that_blocks_pods_is_reported_without_a_pod() -> None:
    assert texts([], [event("FailedCreate", "ReplicaSet", "g-decode-6c9f")]) == [
        "ReplicaSet g-decode-6c9f: pods cannot be created: message of FailedCreate"
    ]


def test_pods_gated_by_grove_do_not_hide_unschedulable_ones() -> None:
    short = "0/4 nodes are available: 1 node(s) had untolerated taint {a: b}, 3 Insufficient gpu."
    held = scheduling("SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates")
    assert texts([held]) == []
    (diagnosis,) = diagnose([held, scheduling("Unschedulable", short)], [])
    assert diagnosis.summary == f"decode: unschedulable: {short}"


def test_a_pod_rejected_by_its_node_is_reported() -> None:
    refused = pod(phase="Failed", reason="UnexpectedAdmissionError", message="devices unavailable")
    del refused["status"]["containerStatuses"]
    assert texts([refused]) == [
        "decode: rejected by its node: UnexpectedAdmissionError: devices unavailable"
    ]


def test_events_of_solved_problems_are_ignored() -> None:
    running = pod(
        main={"state": {"running": {}}}, conditions=[{"type": "PodScheduled", "status": "True"}]
    )
    past = [event("FailedScheduling"), event("FailedMount"), event("Unhealthy")]
    assert texts([running], past) == ["decode: probe failed: message of Unhealthy"]


def test_only_the_newest_event_of_this_pod_is_reported() -> None:
    about = {"kind": "Pod", "name": "g-decode-1"}
    events = [
        event("FailedMount", message="older", lastTimestamp="2026-11-21T10:00:00Z"),
        event("FailedMount", message="newer", lastTimestamp="2026-11-21T11:00:00Z"),
        event(
            "FailedMount",
            message="another's",
            lastTimestamp="2026-11-21T12:00:00Z",
            involvedObject={**about, "uid": "u0"},
        ),
    ]
    assert texts([pod()], events) == ["decode: volume cannot be mounted: newer"]


def test_old_pods_do_not_fail_a_rollout() -> None:
    """Otherwise the fix of a broken release would fail because of the broken pods."""
    (old,) = diagnose([pod(main={"state": IMAGE})], [], old_pods={"u1"})
    (new,) = diagnose([pod(main={"state": IMAGE})], [])
    assert (old.is_permanent, new.is_permanent) == (False, True)


def test_a_job_is_reported_instead_of_its_failed_pods() -> None:
    attempt = pod(labels={"job-name": "g-download"}, phase="Failed")
    assert texts([attempt]) == []
    condition = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}
    job = {"kind": "Job", "metadata": {"name": "g-download"}, "status": {"conditions": [condition]}}
    (diagnosis,) = progress(job).diagnoses
    assert (diagnosis.component, diagnosis.problem, diagnosis.is_permanent) == (
        "Job g-download",
        "failed",
        True,
    )


def graph(generation: int, **status: Any) -> Object:
    component = {"name": "decode", "type": "decode", "replicas": 1, "podTemplate": {"spec": {}}}
    return {
        "kind": "DynamoGraphDeployment",
        "metadata": {"name": "g", "generation": generation},
        "spec": {"components": [component]},
        "status": status,
    }


def ready(status: str, of: int | None, message: str = "") -> Object:
    condition: Object = {"type": "Ready", "status": status, "reason": "r", "message": message}
    return condition if of is None else {**condition, "observedGeneration": of}


def progress(*live: Object) -> Any:
    return progress_of(live, Observation(live=live, pods=(), events=()))


@pytest.mark.parametrize(
    ("seen", "condition", "failed"),
    [
        # The operator raises observedGeneration only if reconciling succeeds.
        (1, ready("False", 2, "no multinode orchestrator"), True),
        (2, ready("False", 2, "no multinode orchestrator"), True),
        (1, ready("False", 1, "of the generation before"), False),
        (1, ready("False", None, "by an older operator"), True),
    ],
)
def test_errors_of_the_operator_are_reported(seen: int, condition: Object, failed: bool) -> None:
    state = progress(graph(2, observedGeneration=seen, state="failed", conditions=[condition]))
    assert [t.message for t in state.diagnoses] == ([condition["message"]] if failed else [])
    assert all(t.is_permanent and t.problem == "operator error" for t in state.diagnoses)
    assert not state.is_done


COUNTS = {"decode": {"replicas": 1, "updatedReplicas": 1, "readyReplicas": 1}}


@pytest.mark.parametrize(
    ("status", "done", "waits"),
    [
        ({"observedGeneration": 2, "conditions": [ready("True", 2)]}, True, ""),
        (
            {"observedGeneration": 1, "conditions": [ready("True", 1)]},
            False,
            "not observed the change yet",
        ),
        (
            {"observedGeneration": 2, "conditions": [ready("True", 1)]},
            False,
            "not reported readiness yet",
        ),
        ({"observedGeneration": 2, "conditions": []}, False, "not reported readiness yet"),
        ({}, False, "not observed the change yet"),
        (
            {"observedGeneration": 2, "conditions": [ready("False", 2, "pods_not_ready")]},
            False,
            "pods_not_ready",
        ),
        (
            {
                "observedGeneration": 2,
                "conditions": [ready("True", 2)],
                "rollingUpdate": {"phase": "InProgress"},
            },
            False,
            "rolling update",
        ),
    ],
)
def test_a_rollout_is_done_only_for_the_newest_generation(
    status: Object, done: bool, waits: str
) -> None:
    state = progress(graph(2, components=COUNTS, **status))
    assert state.is_done == done
    assert waits in state.waiting_for


@pytest.mark.parametrize(
    "counts",
    [
        {"replicas": 2, "updatedReplicas": 1, "readyReplicas": 2},  # an old one is still there
        {"replicas": 1, "updatedReplicas": 0, "readyReplicas": 1},
        {"replicas": 1, "updatedReplicas": 1, "readyReplicas": 0},
        {},
    ],
)
def test_a_rollout_is_done_only_with_all_replicas_updated_and_ready(counts: Object) -> None:
    status = {"observedGeneration": 2, "conditions": [ready("True", 2)]}
    assert not progress(graph(2, components={"decode": counts}, **status)).is_done


def test_pools_on_grove_are_counted_by_available_replicas() -> None:
    counts = {"decode": {"replicas": 1, "updatedReplicas": 1, "availableReplicas": 1}}
    status = {"observedGeneration": 2, "conditions": [ready("True", 2)]}
    assert progress(graph(2, components=counts, **status)).is_done


def test_the_summary_omits_the_restart_count() -> None:
    diagnosis = Diagnosis(
        component="d", pod="p", problem="exited", message="w", is_permanent=False, restarts=4
    )
    assert (diagnosis.summary, str(diagnosis)) == ("d: exited: w", "d: exited: w, 4 restarts")


def test_a_passing_write_conflict_of_the_operator_is_no_error() -> None:
    """Seen in 2 of about 40 rollouts on a real cluster: the operator tries again at once."""
    text = 'Operation cannot be fulfilled on deployments.apps "g-decode": the object has been '
    conflict = f"{text}modified; please apply your changes to the latest version and try again"
    state = progress(graph(2, state="failed", conditions=[ready("False", 2, conflict)]))
    assert state.diagnoses == ()
    assert not state.is_done
