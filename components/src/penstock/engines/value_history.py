"""What versions of the engines accept, from tables of their sources.

Keys and choices of vLLM and SGLang, architectures of models, and the variables that Dynamo, the
engines and huggingface_hub read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import groupby

from packaging.version import Version

from penstock.engines.flags import load
from penstock.engines.releases import RELEASES
from penstock.manifests.deployment import Engine
from penstock.text.names import nearest

TABLE = "value_history.json"
EVERY = "*"


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """Consecutive versions of an engine that refuse a value."""

    first: str
    last: str
    # The values that these versions accept.
    accepted: tuple[str, ...]
    # The version after them that accepts the value, and the one before; empty if none does.
    added_in: str
    removed_after: str

    # Whether the table has no version before or after these.
    is_first: bool
    is_last: bool

    @property
    def specifier(self) -> str:
        """These versions. Versions older than the table's also lack a value that was added later,
        and newer ones a removed value."""
        limits = ([] if self.is_first else [f">={self.first}"]) + (
            [] if self.is_last else [f"<={self.last}"]
        )
        return ",".join(limits)


def names(engine: Engine, kind: str) -> tuple[str, ...]:
    """The flags (`choices`), sections (`sections`) or keys (`connectors`) of the table."""
    return tuple(load(TABLE).get(engine.value, {}).get(kind, {}))


def known_values(engine: Engine, kind: str, name: str) -> tuple[str, ...]:
    """The values that any version of the engine accepts."""
    return tuple(load(TABLE).get(engine.value, {}).get(kind, {}).get(name, {}))


def is_known(engine: Engine, kind: str, name: str, value: str) -> bool:
    """Whether any version of the engine accepts the value."""
    return value in known_values(engine, kind, name)


def choices_in(engine: Engine, flag: str, version: Version) -> tuple[str, ...]:
    """The choices of a flag in a version, or in the last one before it that was read; empty if it
    is older than all of them, or if the flag accepts any text in it."""
    table = load(TABLE)[engine.value]
    read = [at for at, known in enumerate(table["versions"]) if Version(known) <= version]
    listed: Mapping[str, list[int]] = table["choices"].get(flag, {})
    if not read or read[-1] in listed.get(EVERY, ()):
        return ()
    return tuple(choice for choice, versions in listed.items() if read[-1] in versions)


def refusals(engine: Engine, kind: str, name: str, value: str) -> Iterator[Refusal]:
    """The versions that refuse ``value``, which others accept.

    A version that does not restrict the flag refuses none.
    """
    table = load(TABLE)[engine.value]
    versions: list[str] = table["versions"]
    listed: Mapping[str, list[int]] = table[kind][name]
    if value not in listed:
        return
    restricted = {at for positions in listed.values() for at in positions}
    restricted -= set(listed.get(EVERY, ()))
    refusing = sorted(restricted - set(listed[value]))
    for _, run in groupby(enumerate(refusing), key=lambda pair: pair[1] - pair[0]):
        at = [position for _, position in run]
        yield Refusal(
            first=versions[at[0]],
            last=versions[at[-1]],
            accepted=tuple(v for v, seen in listed.items() if at[-1] in seen),
            added_in=versions[at[-1] + 1] if at[-1] + 1 in listed[value] else "",
            removed_after=versions[at[0] - 1] if at[0] - 1 in listed[value] else "",
            is_first=at[0] == 0,
            is_last=at[-1] == len(versions) - 1,
        )


VARIABLES = "variable_names.json"
# Two letters in a name of 25 letters. Custom variables differ more from existing ones.
SIMILARITY = 0.92


@cache
def _known_variables(prefix: str) -> frozenset[str]:
    """The known variables with a prefix. Those of vLLM and SGLang are in value_history.json too."""
    engines = {"VLLM_": "vllm", "SGLANG_": "sglang"}
    table = load("value_history.json")[engines[prefix]] if prefix in engines else None
    named = table["variables"]["named"] if table else ()
    return frozenset((*load(VARIABLES)[prefix], *named))


def misspelled(name: str) -> str:
    """The variable that a name resembles which no program reads; empty for any other name."""
    prefix = f"{name.partition('_')[0]}_"
    if prefix not in load(VARIABLES) or name in _known_variables(prefix):
        return ""
    near = nearest(name, _known_variables(prefix), SIMILARITY)
    # Names that differ only in a digit, such as V1 and V2, are two variables.
    return near if _without_digits(near) != _without_digits(name) else ""


def _without_digits(name: str) -> str:
    return "".join(letter for letter in name if not letter.isdigit())


ARCHITECTURES = "architectures.json"
# TensorRT-LLM's release notes ("Model Support") of the version. Of other models, they and Dynamo's
# pages differ, or state no version.
TRTLLM: Mapping[str, str] = {
    "GlmMoeDsaForCausalLM": "1.3.0rc9",
    "Qwen3_5ForConditionalGeneration": "1.3.0rc9",
    "Qwen3_5MoeForConditionalGeneration": "1.3.0rc9",
}
# The release notes of vLLM 0.23 state that M3 is not supported, but Dynamo's page "Model Early
# Access Builds" states that its recipes run on the images of 1.3, which have 0.23.
DOUBTFUL = ("MiniMaxM3SparseForConditionalGeneration",)


def first_version(engine: Engine, architecture: str) -> str | None:
    """The first engine version in Dynamo's releases that has the architecture; None if unknown, or
    if the oldest known version has it."""
    if architecture in DOUBTFUL:
        return None
    table = TRTLLM if engine is Engine.TRTLLM else load(ARCHITECTURES).get(engine.value, {})
    first = table.get(architecture)
    oldest = getattr(next(iter(RELEASES.values())), engine.value, None)
    return None if first == oldest else first
