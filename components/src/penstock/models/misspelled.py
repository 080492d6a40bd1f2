"""Tell a typing error in the ID of a known model from the ID of another model."""

from __future__ import annotations

import re

from penstock.models.known import exact_config, known_ids, layers_config

# Families of which every published model is known, as (beginning, sizes). The safeguard models
# have the same sizes.
FAMILIES = (
    ("openai/gpt-oss-", ("20b", "120b")),
    ("openai/gpt-oss-safeguard-", ("20b", "120b")),
)
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
            shared = {one: len(set(size) & set(one)) for one in sizes}
            return beginning + max(sizes, key=lambda one: (shared[one], one[0] == size[0]))
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
