"""When an old generation of workers may stop."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import cast

import httpx
import pytest

from penstock.local.deployment import Program
from penstock.local.discovery import Discovery, Instance
from penstock.local.generations import (
    SUFFIX,
    is_complete,
    is_served,
    until_prefill_has_stopped,
    with_generations,
)
from penstock.local.probe import Prober
from penstock.local.process import Child
from penstock.local.reconcile import ReplicaState
from penstock.local.replica import Replica
from penstock.manifests.deployment import Role

FRONTEND = "http://frontend"


def program(name: str, role: Role, **env: str) -> Program:
    return Program(
        name=name, component=name, role=role, replicas=1, argv=("a",), env=env, grace_s=1
    )


class Running:
    """A child process that runs."""

    def exit_code(self) -> None:
        return None


def worker(number: int, role: Role = Role.DECODE, generation: str = "new") -> Replica:
    return Replica(
        program=program(role.value, role, **{SUFFIX: generation}),
        index=number,
        child=cast(Child, Running()),
        port=None,
        system_port=None,
        started=0.0,
        worker_id=number,
    )


class Instances:
    """A discovery in which worker 1 is registered in the namespace `new`."""

    async def instances(self) -> tuple[Instance, ...]:
        return (
            Instance(worker_id=1, namespace="new", component="c", endpoint="generate", address="a"),
        )


def prober(responses: dict[str, httpx.Response]) -> Prober:
    """Frontends that respond to a path as given, else with 404."""

    def respond(request: httpx.Request) -> httpx.Response:
        return responses.get(request.url.raw_path.decode(), httpx.Response(404))

    prober = Prober()
    prober._client = httpx.AsyncClient(transport=httpx.MockTransport(respond))
    return prober


def ready(**namespaces: bool) -> httpx.Response:
    states = {name: {"ready": is_ready} for name, is_ready in namespaces.items()}
    return httpx.Response(200, json={"namespaces": states})


MODELS = httpx.Response(200, json={"data": [{"id": "org/model"}]})


@pytest.mark.parametrize(
    ("response", "served"),
    [
        (ready(old=True), False),
        (ready(old=True, new=False), False),
        (ready(old=True, new=True), True),
        (ready(new=True), True),
        (httpx.Response(404), True),  # a Dynamo that does not have the path
        (httpx.Response(200, text="?"), True),
    ],
)
def test_a_new_generation_is_served_when_frontends_report_it_as_ready(
    response: httpx.Response, served: bool
) -> None:
    probe = prober({"/v1/models": MODELS, "/v1/models/org%2Fmodel/ready": response})
    discovery = cast(Discovery, Instances())
    assert asyncio.run(is_served([worker(1)], [FRONTEND], discovery, probe)) is served


def test_decode_workers_do_not_wait_for_prefill_workers_that_serve() -> None:
    replicas = [worker(1, generation="old"), worker(2, Role.PREFILL, "old")]

    async def sleep(_: float) -> None:
        pytest.fail("it waits")

    asyncio.run(until_prefill_has_stopped(replicas[0], replicas, sleep))


@pytest.mark.parametrize(
    ("roles", "complete"),
    [
        ({Role.WORKER}, True),
        ({Role.PREFILL, Role.DECODE}, True),
        ({Role.DECODE}, False),
        (set(), False),
    ],
)
def test_a_model_needs_workers_of_both_pools_or_of_one_for_both(
    roles: set[Role], complete: bool
) -> None:
    assert is_complete(roles) is complete


def test_a_frontend_that_lists_no_model_does_not_serve() -> None:
    probe = prober({"/v1/models": httpx.Response(200, json={"data": []})})
    discovery = cast(Discovery, Instances())
    assert asyncio.run(is_served([worker(1)], [FRONTEND], discovery, probe)) is False


def test_decode_workers_wait_for_the_prefill_workers_of_their_generation() -> None:
    old_prefill = worker(2, Role.PREFILL, "old")
    old_prefill.state = ReplicaState.DRAINING
    replicas = [worker(1, generation="old"), old_prefill, worker(3, Role.PREFILL)]
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            replicas.remove(old_prefill)

    asyncio.run(until_prefill_has_stopped(replicas[0], replicas, sleep))
    assert len(pauses) == 3


def test_a_change_of_one_worker_is_a_new_generation_of_all() -> None:
    programs = (
        program("frontend", Role.FRONTEND),
        program("prefill", Role.PREFILL),
        program("decode", Role.DECODE),
    )
    changed = (*programs[:2], replace(programs[2], argv=("b",)))
    before, after = with_generations(programs), with_generations(changed)
    assert before[0] == after[0] == programs[0]
    assert before[1].env[SUFFIX] == before[2].env[SUFFIX] != after[1].env[SUFFIX]
    assert with_generations(programs) == before
