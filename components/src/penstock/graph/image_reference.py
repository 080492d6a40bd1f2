"""What is malformed about the reference of a container image, such as `registry/name:tag`.

The grammar is that of github.com/distribution/reference, by which Kubernetes parses an image. The
graph model and `penstock check` use it.
"""

from __future__ import annotations

import re

from penstock.text.names import visible

_PART = r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*"
_PATH = rf"{_PART}(?:/{_PART})*"
_HOST = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
# With a dot, a port or an upper-case letter: without them it is the first part of the path.
_REGISTRY = rf"(?:{_HOST}(?:\.{_HOST})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?"
_TAG = r"[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,127}"
_HEX = {"sha256": 64, "sha384": 96, "sha512": 128}
_KNOWN_DIGEST = "|".join(f"{name}:[a-f0-9]{{{digits}}}" for name, digits in _HEX.items())
_REFERENCE = rf"(?:{_REGISTRY}/)?{_PATH}(?::{_TAG})?(?:@(?:{_KNOWN_DIGEST}))?"
# For JSON schemas.
PATTERN = f"^{_REFERENCE}$"
LONGEST_NAME = 255
SCHEME = re.compile(r"[a-z]+://", re.IGNORECASE)
# The address of a page about an image → the beginning of the name of the image.
_PAGES = {
    r"hub\.docker\.com/r/": "docker.io/",
    r"hub\.docker\.com/_/": "docker.io/library/",
    r"quay\.io/repository/": "quay.io/",
    r"catalog\.ngc\.nvidia\.com/orgs/([^/]+)/teams/([^/]+)/containers/": r"nvcr.io/\1/\2/",
}
GRAMMAR = "Write it as REGISTRY/NAME:TAG, such as `registry.example/team/vllm-runtime:1.6.1`."


def image_problem(image: str) -> tuple[str, str] | None:
    """What is wrong with a reference, and the fix; None if Kubernetes can parse it."""
    if SCHEME.match(image):
        address = SCHEME.sub("", image, count=1)
        for page, registry in _PAGES.items():
            address = re.sub(f"^{page}", registry, address)
        return f"begins with {image.partition('//')[0]}//", _write(address)
    if re.search(r"\s", image):
        return "contains a space", _write("".join(image.split()))
    if not image.isprintable():
        return "contains an invisible character", _write(visible(image))
    rest, at, digest = image.partition("@")
    if at and not re.fullmatch(_KNOWN_DIGEST, digest):
        fix = f"Write `@sha256:` and the 64 hexadecimal digits of the digest{_or(rest)}."
        return f"has the malformed digest {digest!r}", fix
    folder, slash, last = rest.rpartition("/")
    name, colon, tag = last.partition(":")
    path = f"{folder}{slash}{name}"
    if colon and not re.fullmatch(_TAG, tag):
        return _tag_problem(path, tag)
    return _name_problem(image, path)


def _tag_problem(path: str, tag: str) -> tuple[str, str]:
    if not tag:
        return "ends with a colon, without a tag", f"Add a tag after the colon{_or(path)}."
    first, colon, others = tag.partition(":")
    if colon:
        written = _write(f"{path}:{first}") if re.fullmatch(_TAG, first) else GRAMMAR
        return f"has two tags, {first!r} and {others!r}", written
    return (
        f"has the malformed tag {tag!r}",
        f"Use at most 128 letters, digits, '_', '.' and '-' in the tag, such as `{path}:1.6.1`.",
    )


def _name_problem(image: str, path: str) -> tuple[str, str] | None:
    registry, repository = _split(path)
    if repository != repository.lower():
        lower = f"{registry}{repository.lower()}{image.removeprefix(path)}"
        return f"has upper-case letters in {repository!r}", _write(lower)
    if len(path) > LONGEST_NAME:
        return f"has a name of {len(path)} characters, more than {LONGEST_NAME}", GRAMMAR
    if not re.fullmatch(_REFERENCE, image):
        return "is not a reference of an image", GRAMMAR
    return None


def _split(path: str) -> tuple[str, str]:
    """(registry with its slash, repository), as `splitDockerDomain` of the reference does it."""
    first, slash, rest = path.partition("/")
    is_registry = slash and (
        set(first) & set(".:") or first == "localhost" or first.lower() != first
    )
    return (first + slash, rest) if is_registry else ("", path)


def _write(image: str) -> str:
    """The fix that writes another reference, if that one is well-formed."""
    return GRAMMAR if image_problem(image) else f"Write `{image}`."


def _or(image: str) -> str:
    return "" if image_problem(image) else f", or write `{image}`"
