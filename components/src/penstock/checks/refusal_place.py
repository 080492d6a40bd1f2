"""Which setting of a worker an engine's sentence is about."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from penstock.engines.settings import Location
from penstock.serving.worker import Worker

# Endings of names that a sentence leaves out: "decode context parallel" of
# `decode-context-parallel-size`.
LEFT_OUT = ("_size", "_config", "_type")
SHORTEST = 4  # letters of a name: shorter ones, such as `tp`, are parts of other words
# Words of sentences that name a setting in another way → a flag without dashes.
OTHER_WORDS: Mapping[str, str] = {
    "attention_heads": "tensor-parallel-size",
    "data_parallel": "data-parallel-size",
    "dp_size": "data-parallel-size",
    "tp_size": "tensor-parallel-size",
    "pp_size": "pipeline-parallel-size",
    "pipeline_parallel": "pipeline-parallel-size",
    "available_gpus": "tensor-parallel-size",
    "eplb": "enable-eplb",
    "async_scheduling": "async-scheduling",
    "asynchronous_scheduling": "async-scheduling",
    "kv_connector": "kv-transfer-config",
    "speculative": "speculative-config",
    "speculator": "speculative-config",
    "lora": "enable-lora",
    "chunked_prefill_size": "chunked-prefill-size",
    "page_size": "page-size",
}


FLAG = re.compile(r"(?<![\w-])--([a-z][a-z0-9-]+)")


@dataclass(frozen=True, kw_only=True)
class RefusalPlace:
    # The place of the setting that the sentence names; None if it names none that is set.
    location: Location | None
    # The places of all settings that the sentence names.
    related: tuple[Location, ...]


def place_of(sentence: str, worker: Worker) -> RefusalPlace:
    """The place of the setting whose name has the most letters in the sentence; if several have, of
    the first."""
    text = _plain(sentence)
    candidates = sorted(
        set(_named(text, worker)), key=lambda candidate: (-candidate[0], candidate[1])
    )
    settings = worker.settings.values
    keys = list(dict.fromkeys(key for _, _, key in candidates))
    # `--kv-transfer-config` in the sentence: where it would be, if it is not set.
    unset = [flag for flag in FLAG.findall(sentence) if worker.get(flag) is None]
    missing = tuple(worker.config_location(flag) for flag in dict.fromkeys(unset))
    if not keys:
        return RefusalPlace(location=None, related=missing)
    return RefusalPlace(
        location=settings[keys[0]].location,
        related=(*(settings[key].location for key in keys), *missing),
    )


def _named(text: str, worker: Worker) -> Iterator[tuple[int, int, str]]:
    """(letters, position, key) of each set setting that the sentence names."""
    for key, setting in worker.settings.values.items():
        inner = setting.value if isinstance(setting.value, Mapping) else {}
        names = [_plain(key), *(_plain(str(name)) for name in inner)]
        names += [name.removesuffix(end) for name in names for end in LEFT_OUT]
        names += [_plain(key).removeprefix("enable_")]
        words = [word for word, flag in OTHER_WORDS.items() if _is_flag(flag, key)]
        for name in dict.fromkeys((*names, *words)):
            match = re.search(rf"(?<![a-z0-9]){re.escape(name)}(?![a-z0-9])", text)
            if match and len(name) >= SHORTEST:
                is_other = name in words and name not in names
                yield (0 if is_other else len(name)), match.start(), key


def _is_flag(flag: str, key: str) -> bool:
    return _plain(flag) == _plain(key)


def _plain(text: str) -> str:
    """Names as identifiers: `--max-num-seqs` and "max num seqs" are `max_num_seqs`."""
    return re.sub(r"[\s\-_]+", "_", text.lower())
