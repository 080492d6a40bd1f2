"""The packaged values of config.json of public models, found by a model's id or path.

`meant_id` tells a typing error in the ID of a known model from the ID of another model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from penstock.models.config import UnknownShapeError, shape_of
from penstock.models.shape import ModelShape

Config = Mapping[str, Any]

# The id in a cache's path: `…/models--openai--gpt-oss-120b/snapshots/…`.
CACHED = re.compile(r"models--([^/]+?)--([^/]+)")
# Endings of the names of quantized checkpoints. They have the same layers as the model without it.
QUANTIZED = re.compile(
    r"[-_.](fp8|fp4|nvfp4|mxfp4|mxfp8|int4|int8|awq|gptq|w4a16|w8a8|bf16|dynamic|fp8-dynamic|block"
    r"|gptq-int4|gptq-int8)$",
    re.IGNORECASE,
)
# Endings of later or tuned versions of a model, which has the same layers. Their context length and
# the scaling of positions may differ.
VARIANT = re.compile(r"-(\d{4}|instruct|thinking|chat|base|it)$", re.IGNORECASE)
NAMED_FP4 = re.compile(r"[-_.](nv)?fp4\b", re.IGNORECASE)
OF_POSITIONS = ("max_position_embeddings", "rope_scaling", "rope_parameters")


@cache
def known_models() -> Mapping[str, Config]:
    """By id in lower case; `tools/dump_known_models.py` writes them."""
    return {name.lower(): config for name, config in _configs().items()}


@cache
def _configs() -> Mapping[str, Config]:
    """By id as the model hub spells it."""
    text = files("penstock.models.data").joinpath("known_models.json").read_text("utf-8")
    return dict(json.loads(text))


def known_ids() -> tuple[str, ...]:
    """The ids of all known models, as the model hub spells them."""
    return tuple(_configs())


def known_id(name: str) -> str | None:
    """The id of a known model from an id, the path of a cache, or a folder with the model's name.

    None if it is unknown, or if two organizations have a model of that name.
    """
    cached = CACHED.search(name)
    text = f"{cached[1]}/{cached[2]}" if cached else name.rstrip("/")
    last = text.rpartition("/")[2].lower()
    exact = [id_ for id_ in _configs() if id_.lower() == text.lower()]
    alike = [id_ for id_ in _configs() if id_.rpartition("/")[2].lower() == last]
    return exact[0] if exact else alike[0] if len(alike) == 1 else None


@cache
def _by_last_part() -> Mapping[str, Config]:
    """By the last part of the id, without those that two organizations use."""
    by_part: dict[str, Config | None] = {}
    for name, config in known_models().items():
        last = name.rpartition("/")[2]
        by_part[last] = None if last in by_part else config
    return {last: config for last, config in by_part.items() if config is not None}


def exact_config(name: str) -> Config | None:
    """The values of exactly this model: an id, or the path of a cache that contains the id."""
    cached = CACHED.search(name)
    id_ = f"{cached[1]}/{cached[2]}" if cached else name
    return known_models().get(id_.lower())


def last_part(name: str) -> str:
    """The last part of an id or path; in the path of a cache, that of the id."""
    cached = CACHED.search(name)
    return cached[2] if cached else name.rstrip("/").rpartition("/")[2]


def is_nvfp4(name: str) -> bool:
    """Whether the model's config says that its weights are in NVFP4 or, if it is unknown, its
    name does."""
    config = exact_config(name)
    section = config.get("quantization_config") if config is not None else None
    if isinstance(section, dict):
        return str(section.get("quant_algo", "")).upper() == "NVFP4"
    return config is None and has_nvfp4(name)


def has_nvfp4(name: str) -> bool:
    """Whether the name says that weights are in NVFP4: all, or only those of the experts."""
    return NAMED_FP4.search(last_part(name)) is not None


def layers_config(name: str) -> Config | None:
    """The values of this model, or of a model with the same layers and another quantization.

    In the second case, and for a folder with a model's name, nothing is known about the
    quantization, and `quantization_config` is absent. For a later or tuned version of a model the
    keys of positions are absent too.
    """
    if (exact := exact_config(name)) is not None:
        return exact
    last = last_part(name).lower()
    absent = {"quantization_config"}
    while (config := _by_last_part().get(last)) is None:
        shorter = QUANTIZED.sub("", last)
        if shorter == last and (shorter := VARIANT.sub("", last)) != last:
            absent.update(OF_POSITIONS)
        if shorter == last:
            return None
        last = shorter
    return {key: value for key, value in config.items() if key not in absent}


def known_shape(name: str) -> ModelShape | None:
    """The shape of exactly this model; None if it or its model type is unknown."""
    config = exact_config(name)
    try:
        return None if config is None else shape_of(config, name)
    except UnknownShapeError:
        return None


# Families of which every published model is known, as (beginning, sizes). The safeguard models
# have the same sizes.
FAMILIES = (("openai/gpt-oss-", ("20b", "120b")), ("openai/gpt-oss-safeguard-", ("20b", "120b")))
SHORTEST_WORD = 3  # `V3` and `R1` are different models; `Qwem` is none
_WORDS = re.compile(r"[a-z]+|[0-9.]*[0-9]")


def meant_id(name: str) -> str | None:
    """The ID of the known model that was probably meant; None if the name may be another model."""
    organization, slash, model = name.rpartition("/")
    is_known = exact_config(name) is not None or layers_config(name) is not None
    if not slash or "/" in organization:
        return None
    same = [id_ for id_ in known_ids() if id_.partition("/")[2].lower() == model.lower()]
    if is_known:  # of this or of another organization
        close = [id_ for id_ in same if _is_typo(organization, id_.partition("/")[0])]
        return close[0] if close else None
    of_organization = {
        id_: id_.partition("/")[2]
        for id_ in known_ids()
        if id_.partition("/")[0].lower() == organization.lower()
    }
    near = [id_ for id_, known in of_organization.items() if _is_misspelled(model, known)]
    return near[0] if near else _of_family(name)


def _is_misspelled(model: str, known: str) -> bool:
    """Whether one word has a typing error or a separator differs; numbers must be equal."""
    ours, theirs = (_WORDS.findall(text.lower()) for text in (model, known))
    if "".join(ours) == "".join(theirs):
        return True
    differing = [(a, b) for a, b in zip(ours, theirs, strict=False) if a != b]
    return len(ours) == len(theirs) and len(differing) == 1 and _is_typo(*differing[0])


def _of_family(name: str) -> str | None:
    """The nearest size, for a size that the family does not have."""
    for beginning, sizes in FAMILIES:
        size = name.lower().removeprefix(beginning)
        if size != name.lower() and size not in sizes and re.fullmatch(r"[0-9]+b*", size):
            likeness = [(len(set(size) & set(known)), known[0] == size[0]) for known in sizes]
            return beginning + sizes[likeness.index(max(likeness))]
    return None


def _is_typo(word: str, known: str) -> bool:
    """Whether a word differs by one letter: another, one more, one less, or two exchanged."""
    a, b = sorted((word.lower(), known.lower()), key=len)
    if a == b or len(b) < SHORTEST_WORD or not (a + b).replace("-", "").isalpha():
        return False
    if len(a) + 1 == len(b):
        return any(a == b[:i] + b[i + 1 :] for i in range(len(b)))
    differing = [i for i in range(len(a)) if a[i] != b[i]] if len(a) == len(b) else []
    is_swap = (
        len(differing) == 2
        and differing[0] + 1 == differing[1]
        and a[differing[0]] + a[differing[1]] == b[differing[1]] + b[differing[0]]
    )
    return len(differing) == 1 or is_swap
