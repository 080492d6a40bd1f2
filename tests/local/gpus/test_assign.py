"""Which GPUs replicas get."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.local.gpus.gpu import Gpu, Link
from penstock.local.gpus.pool import assign, choose


def gpu(
    index: int, *, name: str = "H200", nvlink: tuple[int, ...] = (), node: tuple[int, ...] = ()
) -> Gpu:
    links = dict.fromkeys(node, Link.SAME_NODE) | dict.fromkeys(nvlink, Link.NVLINK)
    links.pop(index, None)
    return Gpu(
        index=index, uuid=f"GPU-{index}", name=name, memory_bytes=None, used_bytes=None, links=links
    )


PLAIN = [gpu(i) for i in range(4)]
# 0 and 3, 1 and 2 have bridges; 0 and 1 are on one NUMA node.
BRIDGES = [
    gpu(0, nvlink=(3,), node=(1,)),
    gpu(1, nvlink=(2,), node=(0,)),
    gpu(2, nvlink=(1,), node=(3,)),
    gpu(3, nvlink=(0,), node=(2,)),
]
NODES = [gpu(i, node=(0, 1) if i in (0, 1) else (2, 3)) for i in range(4)]
PAIR = [gpu(0), gpu(1), gpu(2, nvlink=(3, 4)), gpu(3, nvlink=(2,)), gpu(4, nvlink=(2,))]
SWITCH = [gpu(i, nvlink=tuple(range(8))) for i in range(8)]
MIXED = [gpu(0, name="L4"), gpu(1), gpu(2, name="L4"), gpu(3), gpu(4)]


@pytest.mark.parametrize(
    ("gpus", "sizes", "expected"),
    [
        (PLAIN, [1, 1], [[0], [1]]),
        (PLAIN, [2, 1, 1], [[0, 1], [2], [3]]),
        (PLAIN, [1, 2, 1], [[2], [0, 1], [3]]),  # the largest chooses first
        (PLAIN, [4], [[0, 1, 2, 3]]),
        (PLAIN, [], []),
        (PLAIN, [4, 1], None),
        (PLAIN, [5], None),
        ([], [1], None),
        (BRIDGES, [2, 2], [[0, 3], [1, 2]]),
        (PAIR, [2], [[2, 3]]),  # although 0 and 1 have lower indices
        (NODES[1:], [2], [[2, 3]]),  # not 1, which has no neighbor
        (NODES[1:], [1], [[1]]),
        (NODES[:3], [1], [[2]]),  # 0 and 1 stay together
        (BRIDGES[1:], [1], [[3]]),  # 1 and 2 stay together
        (SWITCH, [1, 1, 1, 1, 4], [[4], [5], [6], [7], [0, 1, 2, 3]]),
        (MIXED, [2], [[0, 2]]),  # the three of the other model stay whole
        (MIXED, [3, 2], [[1, 3, 4], [0, 2]]),
        (MIXED, [4], None),  # five GPUs, at most three of one model
    ],
)  # fmt: skip
def test_assignment(gpus: list[Gpu], sizes: list[int], expected: list[list[int]] | None) -> None:
    groups = assign(gpus, sizes)
    assert (None if groups is None else [[g.index for g in group] for group in groups]) == expected


def test_the_order_of_the_free_gpus_does_not_matter() -> None:
    assert choose(reversed(SWITCH), 3) == choose(SWITCH, 3)


@given(
    st.lists(st.integers(0, 2), max_size=8),
    st.lists(st.integers(1, 4), max_size=6),
)
def test_no_gpu_is_assigned_twice_and_none_is_missed(kinds: list[int], sizes: list[int]) -> None:
    gpus = [
        gpu(index, nvlink=tuple(range(8)) if kind else (), node=(0, 1))
        for index, kind in enumerate(kinds)
    ]
    groups = assign(gpus, sizes)
    assert (groups is None) == (sum(sizes) > len(gpus))  # of one model, so only the sum counts
    if groups is not None:
        used = [g.index for group in groups for g in group]
        assert len(used) == len(set(used))
        assert [len(group) for group in groups] == sizes
