"""Choose GPUs for replicas. Pure: the same free GPUs and sizes give the same choice.

The GPUs of one replica are of one model. Among those, GPUs that are connected by NVLink are
preferred, then GPUs of one NUMA node. Other connected GPUs stay together for later replicas.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations

from penstock.local.gpus.gpu import Gpu, Link

Chosen = tuple[Gpu, ...]


def assign(free: Iterable[Gpu], sizes: Sequence[int]) -> list[Chosen] | None:
    """GPUs for each of ``sizes``, which are numbers of GPUs; None when there are too few.

    The largest replicas choose first.
    """
    left = list(free)
    chosen: dict[int, Chosen] = {}
    for at in sorted(range(len(sizes)), key=lambda at: -sizes[at]):
        gpus = choose(left, sizes[at])
        if gpus is None:
            return None
        chosen[at] = gpus
        left = [gpu for gpu in left if gpu not in gpus]
    return [chosen[at] for at in range(len(sizes))]


def choose(free: Iterable[Gpu], count: int) -> Chosen | None:
    """``count`` GPUs for one replica, sorted by index; None when there are too few of one model."""
    by_model: dict[str, list[Gpu]] = {}
    for gpu in sorted(free, key=lambda gpu: gpu.index):
        by_model.setdefault(gpu.model, []).append(gpu)
    enough = [gpus for gpus in by_model.values() if len(gpus) >= count]
    if not enough:
        return None
    # The smallest sufficient group: larger ones stay free for larger replicas.
    gpus = min(enough, key=lambda gpus: (len(gpus), gpus[0].index))
    groups = [_around(seed, gpus, count) for seed in gpus]
    return min(groups, key=lambda group: _cost(group, gpus))


def _around(seed: Gpu, gpus: list[Gpu], count: int) -> Chosen:
    """``seed`` and the GPUs that are connected to it best."""
    near = [gpu for gpu in gpus if gpu is not seed]
    near.sort(key=lambda gpu: (-seed.link(gpu), gpu.index))
    return tuple(sorted([seed, *near[: count - 1]], key=lambda gpu: gpu.index))


def _cost(group: Chosen, gpus: list[Gpu]) -> tuple[int, int, int, tuple[int, ...]]:
    links = [gpu.link(other) for gpu, other in combinations(group, 2)]
    outside = [gpu for gpu in gpus if gpu not in group]
    # Connections to GPUs that stay free: taking this group would divide theirs.
    divided = sum(gpu.link(other) for gpu in group for other in outside)
    worst = min(links, default=Link.NVLINK)
    return (-worst, -sum(links), divided, tuple(gpu.index for gpu in group))
