"""Which faults a release can have, and what the judge knows about them."""

from __future__ import annotations

import pytest

from penstock.cluster.pods import Pod
from penstock.drill.cluster import KINDS, ClusterChoice, candidates, choose, fault_on
from penstock.drill.evaluate import FaultRecord, evaluate
from penstock.drill.faults import Rotation
from penstock.drill.traffic import Ending, StreamResult
from penstock.errors import UsageError
from penstock.manifests.deployment import Role

COMPONENTS = ("frontend", "decode")


def pod(component: str, number: int, node: str = "a", *, is_ready: bool = True) -> Pod:
    name = f"{component}-{number}"
    return Pod(
        name=name,
        uid=name,
        component=component,
        node=node,
        is_ready=is_ready,
        restarts=0,
        container="main",
    )


PODS = [pod("frontend", 0), pod("decode", 0), pod("decode", 1, "b")]


def test_drain_is_only_injected_if_it_is_named() -> None:
    assert {choice.kind for choice in choose("default")} == KINDS.keys() - {"drain"}
    assert choose("drain:b, kill") == [
        ClusterChoice(kind="drain", target="b"),
        ClusterChoice(kind="kill"),
    ]


def test_a_component_keeps_a_ready_pod() -> None:
    possible = candidates(choose("delete,drain"), PODS, COMPONENTS, may_remove_last=False)
    assert possible.possible == (("delete", "decode"), ("drain", "b"))
    assert possible.skipped == (
        "skipped delete:frontend: frontend has 1 ready pod(s)",
        "skipped drain:a: all ready pods of frontend are on it",
    )
    everything = candidates(choose("delete,drain"), PODS, COMPONENTS, may_remove_last=True)
    assert len(everything.possible) == 4
    not_ready = [*PODS[:2], pod("decode", 1, "b", is_ready=False)]
    with pytest.raises(UsageError, match="decode has 1 ready pod"):
        candidates(choose("evict:decode"), not_ready, COMPONENTS, may_remove_last=False)


def test_a_fault_knows_whether_another_pod_could_serve() -> None:
    fault = fault_on("delete", [PODS[1]], PODS)
    assert (fault.target, fault.role, fault.has_survivor) == ("decode.decode-0", Role.DECODE, True)
    node = fault_on("drain", PODS[:2], PODS)
    assert (node.target, node.role, node.has_survivor) == ("node.a", Role.FRONTEND, False)
    assert fault_on("drain", [PODS[2]], PODS).role is None


@pytest.mark.parametrize(
    ("clients", "started_s", "is_unavoidable"),
    [(None, 1.0, True), (None, 2.5, False), ((7,), 1.0, True), ((8,), 1.0, False)],
)
def test_a_stream_through_a_frontend_whose_clients_are_not_known(
    clients: tuple[int, ...] | None, started_s: float, is_unavoidable: bool
) -> None:
    record = FaultRecord(
        number=1,
        kind="kill",
        target="frontend.f-0",
        role=Role.FRONTEND,
        started_s=2.0,
        ended_s=2.0,
        recovered_s=5.0,
        has_survivor=True,
        clients=clients,
    )
    request = StreamResult(
        number=1,
        error="broken",
        ending=Ending.TRUNCATED,
        started_s=started_s,
        first_token_s=started_s,
        ended_s=3.0,
        client_port=7,
    )
    (failure,) = evaluate([request], [record], stall_s=5).failures
    assert failure.is_unavoidable == is_unavoidable
    assert ("may have been to frontend.f-0" in failure.cause) == (clients is None and started_s < 2)


def test_a_rotation_returns_everything_once() -> None:
    rotation = Rotation[int](seed=3)
    first = [rotation.next([1, 2, 3]) for _ in range(3)]
    assert sorted(first) == [1, 2, 3]
    assert rotation.is_over
    assert sorted(rotation.next([1, 2, 3]) for _ in range(3)) == [1, 2, 3]
    assert [Rotation[int](seed=3).next([1, 2, 3])] == first[:1]
