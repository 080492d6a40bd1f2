"""How many GPUs the replicas of a graph need, and the messages when this machine has too few or
others than the graph was written for. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.local.deployment import Program
from penstock.local.gpus.gpu import Gpu, gib, models
from penstock.local.reconcile import ReplicaState
from penstock.local.replica import Replica
from penstock.text.commands import command, restart


@dataclass(frozen=True, kw_only=True)
class GpuNeed:
    """The replicas of one program."""

    name: str
    component: str
    replicas: int
    """All that the graph asks for."""
    gpus: int
    """For each."""
    new: int
    """Replicas that have no GPUs yet."""

    @property
    def total(self) -> int:
        return self.replicas * self.gpus


@dataclass(frozen=True, kw_only=True)
class GpuNeeds:
    """What a deployment needs in addition to what runs."""

    programs: tuple[GpuNeed, ...] = ()
    returning: frozenset[int] = frozenset()
    """Indices of the GPUs of replicas that stop without waiting for new ones."""
    replaced: frozenset[int] = frozenset()
    """Indices of the GPUs of replicas that serve until the new ones are ready."""

    @property
    def total(self) -> int:
        return sum(need.total for need in self.programs)

    @property
    def sizes(self) -> list[int]:
        """GPUs of each new replica."""
        return [need.gpus for need in self.programs for _ in range(need.new)]


def gpu_needs(programs: Sequence[Program], replicas: Sequence[Replica]) -> GpuNeeds:
    """``programs`` with their generations, as they are to run; ``replicas``: those that exist."""
    current_ones = {_identity(program) for program in programs}
    needs, returning = [], set()
    for program in programs:
        identity = _identity(program)
        current = [r for r in replicas if _identity(r.program) == identity and _stays(r)]
        current.sort(key=lambda r: (r.state is not ReplicaState.READY, r.index))
        for surplus in current[program.replicas :]:
            returning |= set(surplus.gpus)
        if program.gpus:
            new = max(0, program.replicas - len(current))
            needs.append(_need(program, new))
    replaced = set()
    for replica in replicas:
        is_old = _identity(replica.program) not in current_ones
        if not _stays(replica) or (is_old and replica.state is ReplicaState.CRASHED):
            returning |= set(replica.gpus)
        elif is_old:
            replaced |= set(replica.gpus)
    return GpuNeeds(
        programs=tuple(needs), returning=frozenset(returning), replaced=frozenset(replaced)
    )


def _need(program: Program, new: int) -> GpuNeed:
    return GpuNeed(
        name=program.name,
        component=program.component,
        replicas=program.replicas,
        gpus=program.gpus,
        new=new,
    )


def _identity(program: Program) -> tuple[str, str]:
    return program.name, program.key


def _stays(replica: Replica) -> bool:
    return replica.state is not ReplicaState.DRAINING


def too_few(
    needs: GpuNeeds, machine: Sequence[Gpu], hidden: int, unusable: Mapping[int, str], free: int
) -> str:
    """What is needed, what there is, and what uses the rest.

    ``hidden``: GPUs that CUDA_VISIBLE_DEVICES leaves out. ``unusable``: index → why a GPU of
    ``machine`` is not free. ``free``: the number that is.
    """
    terms = " + ".join(f"{need.name} {need.replicas} × {need.gpus}" for need in needs.programs)
    head = f"not enough free GPUs: {terms} = {_gpus(needs.total)}"
    if needs.replaced:
        head += f", and the workers that serve until these are ready keep {len(needs.replaced)}"
    owned = f"this machine has {len(machine)} ({models(machine)})" if machine else "none is visible"
    parts = [f"{head}, {owned}"]
    if hidden:
        parts.append(f"CUDA_VISIBLE_DEVICES hides {_gpus(hidden)}")
    parts += [f"GPU {index}: {reason}" for index, reason in sorted(unusable.items())]
    if free >= sum(needs.sizes):
        parts.append("the GPUs of one replica must be of one model")
    return "; ".join(parts)


def remedy(
    needs: GpuNeeds, capacity: int, graph: str, *, is_up: bool, unusable: Sequence[Gpu] = ()
) -> str:
    """What to do; ``capacity``: the GPUs that this graph can have; ``unusable``: those that other
    processes or MIG keep from it."""
    if needs.replaced:
        return f"Run {restart(graph)}."
    counts = _fitting(needs.programs, capacity)
    sets = " and ".join(f"`{name}.replicas={count}`" for name, count in counts.items())
    if is_up:
        return f"Set {sets}." if sets else "Reduce the replicas."
    mocker = command("up", graph, "--engine", "mocker")
    if not sets and unusable and not capacity:
        return f"{_freeing(unusable)}, or run {mocker}."
    if not sets:
        return f"Run {mocker}, or set a smaller `gpus`."
    return f"Set {sets} (in the file or with --set), or run {mocker}."


def _freeing(unusable: Sequence[Gpu]) -> str:
    """How to make GPUs usable."""
    mig = [str(gpu.index) for gpu in unusable if gpu.has_mig]
    pids = [str(p.pid) for gpu in unusable if not gpu.has_mig for p in gpu.processes]
    ways = (
        [f"stop {'process' if len(pids) == 1 else 'processes'} {', '.join(pids)}"] if pids else []
    )
    ways += [f"disable MIG (`nvidia-smi -i {','.join(mig)} -mig 0`)"] if mig else []
    text = " or ".join(ways) or "stop the processes that use the GPUs"
    return text[0].upper() + text[1:]


def _fitting(needs: Sequence[GpuNeed], free: int) -> dict[str, int]:
    """Replicas of each component that fit into ``free`` GPUs, at least one each; empty if none."""
    counts = {need.name: min(1, need.replicas) for need in needs}
    left = free - sum(counts[need.name] * need.gpus for need in needs)
    if left < 0:
        return {}
    while grown := [n for n in needs if counts[n.name] < n.replicas and n.gpus <= left]:
        least = min(grown, key=lambda need: counts[need.name] / need.replicas)
        counts[least.name] += 1
        left -= least.gpus
    return {
        need.component: counts[need.name] for need in needs if counts[need.name] < need.replicas
    }


def _gpus(count: int) -> str:
    return f"{count} GPU" if count == 1 else f"{count} GPUs"


def gpu_notes(
    programs: Sequence[Program], gpus: Sequence[Gpu], written_for: str | None
) -> tuple[str, ...]:
    """``written_for``: the graph's `hardware.gpu`, such as h200; None: unknown. Empty without
    programs that use a GPU."""
    if not gpus or not any(program.gpus for program in programs):
        return ()
    notes = []
    unlike = [gpu for gpu in gpus if not _is(gpu, written_for)]
    if written_for and unlike:
        notes.append(
            f"the graph's settings and its memory check are for {written_for}, and this machine "
            f"has {models(gpus)}"
        )
    return (*notes, *(note for p in programs if (note := _weights_note(p, gpus))))


def _is(gpu: Gpu, kind: str | None) -> bool:
    """Whether a word of the name is the kind: `NVIDIA GB200` is not a b200."""
    return kind is not None and kind in re.split(r"[\s-]+", gpu.name.lower())


def _weights_note(program: Program, gpus: Sequence[Gpu]) -> str:
    """The engine may load them in fewer bits, so this is a note, not an error."""
    least = min((gpu.memory_bytes for gpu in gpus if gpu.memory_bytes), default=0)
    if not program.gpus or not least:
        return ""
    share = program.weights_bytes // program.gpus
    if share <= least:
        return ""
    total = gib(program.weights_bytes)
    return (
        f"{program.name}: the weight files have {total}, {gib(share)} for each of {program.gpus} "
        f"GPUs, and a GPU has {gib(least)}: the engine will probably run out of memory"
    )
