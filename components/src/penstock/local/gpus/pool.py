"""The GPUs that one graph has reserved, and which of its replicas has which.

A lock on a file for each GPU keeps the graphs of one user apart. The kernel releases it when
penstock ends in any way.
"""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import IO

from penstock.errors import MissingToolError
from penstock.local.gpus.gpu import Gpu, Inventory, Link
from penstock.local.gpus.needs import GpuNeeds, remedy, too_few

Chosen = tuple[Gpu, ...]


class GpuPool:
    """``read`` returns the machine's GPUs now; ``folder`` has the locks; ``graph`` is the file."""

    def __init__(self, read: Callable[[], Inventory], folder: Path, graph: str) -> None:
        self._read, self._folder, self._graph = read, folder, graph
        self._reserved: dict[int, tuple[Gpu, IO[str]]] = {}
        self._assigned: set[int] = set()
        self._fresh: set[int] = set()  # locked by the `reserve` that runs
        self._replaced: set[int] = set()  # of replicas that serve until new ones are ready
        self._needed = 0  # for all replicas of the graph, without those

    @property
    def reserved(self) -> tuple[Gpu, ...]:
        return tuple(self._reserved[index][0] for index in sorted(self._reserved))

    def reserve(self, needs: GpuNeeds) -> None:
        """Reserve what the new replicas need. MissingToolError, and nothing changes, when there
        are too few GPUs."""
        if needs.sizes:
            self._reserve(needs)
        self._needed, self._replaced = needs.total, set(needs.replaced)
        self._release_surplus()

    def take(self, count: int, before: Iterable[int] = ()) -> tuple[int, ...] | None:
        """Indices of ``count`` GPUs for a replica; None while the reserved ones are in use.

        ``before``: those of the replica that it replaces after a crash.
        """
        if same := tuple(before):
            return same
        if not count:
            return ()
        free = [gpu for gpu in self.reserved if gpu.index not in self._assigned]
        chosen = choose(free, count)
        if chosen is None:
            return None
        taken = tuple(gpu.index for gpu in chosen)
        self._assigned.update(taken)
        return taken

    def give_back(self, gpus: Iterable[int]) -> None:
        """Of a replica that has ended."""
        returned = set(gpus)
        self._assigned -= returned
        self._replaced -= returned
        self._release_surplus(returned)

    def close(self) -> None:
        """Release every GPU."""
        for index in list(self._reserved):
            self._release(index)

    def _reserve(self, needs: GpuNeeds) -> None:
        inventory = self._read()
        self._fresh = set()
        with self._guard():
            unusable = {g.index: why for g in inventory.gpus if (why := self._why_not(g, needs))}
            usable = [gpu for gpu in inventory.gpus if gpu.index not in unusable]
            chosen = assign(usable, needs.sizes)
            if chosen is None:
                self._release_new(usable)
                raise self._problem(needs, inventory, unusable)
            self._release_new(usable, keep={gpu.index for group in chosen for gpu in group})

    def _why_not(self, gpu: Gpu, needs: GpuNeeds) -> str:
        """Lock ``gpu`` for a new replica, or say why none may run on it."""
        if gpu.index in self._assigned and gpu.index not in needs.returning:
            return "in use by this graph"
        if gpu.index in self._reserved:
            return ""
        return gpu.unusable or self._lock(gpu)

    def _lock(self, gpu: Gpu) -> str:
        """Empty, else the graph that has reserved ``gpu``."""
        lock = (self._folder / f"{gpu.uuid}.reserved").open("a+")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.seek(0)
            owner = lock.read()
            lock.close()
            return f"reserved by {owner}"
        lock.truncate(0)
        lock.write(self._graph)
        lock.flush()
        self._reserved[gpu.index] = gpu, lock
        self._fresh.add(gpu.index)
        return ""

    @contextlib.contextmanager
    def _guard(self) -> Iterator[None]:
        """One process at a time tries locks: another must not see those that it releases again."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / "guard").open("a") as guard:
            fcntl.flock(guard, fcntl.LOCK_EX)
            yield

    def _release_new(self, usable: Iterable[Gpu], keep: Iterable[int] = ()) -> None:
        for gpu in usable:
            if gpu.index in self._fresh and gpu.index not in set(keep):
                self._release(gpu.index)

    def _release_surplus(self, first: Iterable[int] = ()) -> None:
        """Release the GPUs that no replica will need, ``first`` before others."""
        idle = self._reserved.keys() - self._assigned
        order = sorted(idle, key=lambda index: (index not in set(first), -index))
        surplus = len(self._reserved) - len(self._replaced) - self._needed
        for index in order[: max(0, surplus)]:
            self._release(index)

    def _release(self, index: int) -> None:
        self._reserved.pop(index)[1].close()

    def _problem(
        self, needs: GpuNeeds, inventory: Inventory, unusable: Mapping[int, str]
    ) -> MissingToolError:
        unassigned = {i: why for i, why in unusable.items() if i not in self._assigned}
        free = len(inventory.gpus) - len(unusable)
        message = too_few(needs, inventory.gpus, inventory.hidden, unassigned, free)
        capacity = len(inventory.gpus) - len(unassigned)
        occupied = [gpu for gpu in inventory.gpus if gpu.unusable and gpu.index in unassigned]
        is_up = bool(self._assigned)
        fix = remedy(needs, capacity, self._graph, is_up=is_up, unusable=occupied)
        return MissingToolError(message, file=self._graph, fix=fix)


def assign(free: Iterable[Gpu], sizes: Sequence[int]) -> list[Chosen] | None:
    """GPUs for each of ``sizes``, which are numbers of GPUs; None when there are too few. Pure.

    The largest replicas choose first. The GPUs of one replica are of one model. Among those, GPUs
    that are connected by NVLink are preferred, then GPUs of one NUMA node. Other connected GPUs
    stay together for later replicas.
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
