"""Compare two YAML values field by field, and hide credentials in what is printed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.strict_yaml.places import looks_secret

HIDDEN = "(hidden)"


class _Absent:
    def __repr__(self) -> str:
        return "unset"


ABSENT = _Absent()


@dataclass(frozen=True, kw_only=True)
class FieldChange:
    """One field that differs; ``before`` or ``after`` is ABSENT where the field is unset."""

    path: str  # such as "env.HF_HOME"
    before: Any
    after: Any

    def __str__(self) -> str:
        before, after = self.printable
        return f"{self.path} {before} → {after}"

    @property
    def printable(self) -> tuple[str, str]:
        """Both values for output; a credential is shown as unset or (hidden)."""
        if _is_secret(self.path, self.before) or _is_secret(self.path, self.after):
            before, after = (
                "unset" if value is ABSENT else HIDDEN for value in (self.before, self.after)
            )
            return before, after
        return format_value(_masked(self.before)), format_value(_masked(self.after))


# Names of variables and flags, and prefixes of values, that mark a credential. Wider than
# `looks_secret`, because users choose these names freely.
SECRET_NAME = re.compile(
    r"\b(env\.|args\.-).*((?<!TIK)TOKEN(?!I[SZ])|SECRET|PASSW|CREDENTIAL"
    r"|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|-key)",
    re.IGNORECASE,
)
# Numbers under these names are limits, such as --max-num-batched-tokens.
COUNT_NAME = re.compile(r"tokens$", re.IGNORECASE)
# Of Hugging Face, OpenAI, GitHub, GitLab, Slack, AWS and NVIDIA, and of JSON Web Tokens.
CREDENTIAL_PREFIX = r"(hf_|sk-|ghp_|github_pat_|glpat-|xox[a-z]-|AKIA|eyJ|nvapi-)"
SECRET_VALUE = re.compile(f"^{CREDENTIAL_PREFIX}")
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")
URL_SECRET = re.compile(r"(?<=://)[^/\s@]+:[^/\s@]+(?=@)")
SECRET_WORD = re.compile(rf"\b{CREDENTIAL_PREFIX}[\w.=/+-]{{8,}}|(?<=Bearer )\S+")
# `password=…`, `"api_key": "…"`, `--api-key …`, as programs log their settings. A message such as
# `volume "my-secret" : secret "hf" not found` names objects and stays.
SECRET_PAIR = re.compile(
    r"""(?x)
    ( (?<![\w-]) (?P<flag>--)?
      (?: [\w-]* (?: passw(?:or)?d | (?:api|access|private|secret)[_-]?key | [_-]secret
                   | (?:auth|access|api|hf|hub|secret)[_-]?token ) (?:[_-]\w+)?
        | secret (?=[ \t]*=) | token (?=[ \t]*=) )
      (?:\\?["'])? (?: [ \t]*=[ \t]* | :[ \t]* | (?(flag)[ \t]+|(?!)) ) )
    (?!\(hidden\)) (?: (?P<quote>\\?["']) .*? (?P=quote) | [^\s"',;&}\\]+ )
    """,
    re.IGNORECASE,
)


def without_secrets(text: str) -> str:
    """Text from elsewhere, such as a log, without credentials and terminal control sequences."""
    text = SECRET_WORD.sub(HIDDEN, CONTROL.sub("", text))
    return SECRET_PAIR.sub(_hidden_value, URL_SECRET.sub(HIDDEN, text))


def _hidden_value(match: re.Match[str]) -> str:
    quote = match["quote"] or ""
    return f"{match[1]}{quote}{HIDDEN}{quote}"


def _is_secret(path: str, value: Any) -> bool:
    if not isinstance(value, str) or (value.isdecimal() and COUNT_NAME.search(path)):
        return False
    named = looks_secret(path) or SECRET_NAME.search(path)
    return bool(named or SECRET_VALUE.search(value))


def _masked(value: Any) -> Any:
    """The value with every credential replaced by (hidden), at any depth."""
    if isinstance(value, Mapping):
        return {k: HIDDEN if _is_secret(str(k), v) else _masked(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_masked(inner) for inner in value]
    return without_secrets(value) if isinstance(value, str) else value


def differences(before: Any, after: Any, path: str = "") -> Iterator[FieldChange]:
    """Every leaf that differs; lists of named elements are compared by name, other lists as one
    value."""
    before, after = _by_name(before), _by_name(after)
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in [*before, *(k for k in after if k not in before)]:
            inner = f"{path}.{key}" if path else str(key)
            yield from differences(before.get(key, ABSENT), after.get(key, ABSENT), inner)
    elif _are_parallel(before, after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from differences(old, new, f"{path}[{index}]")
    elif not _same(before, after):
        yield FieldChange(path=path, before=before, after=after)


def _are_parallel(before: Any, after: Any) -> bool:
    """Whether both are lists of equally many mappings, which are compared by index."""
    both = (before, after)
    return (
        all(isinstance(v, list) and all(isinstance(e, Mapping) for e in v) for v in both)
        and len(before) == len(after) > 0
    )


def overwritten(declared: Any, live: Any, path: str = "") -> Iterator[FieldChange]:
    """Fields of ``declared`` that have another value in ``live``; additional fields of ``live`` are
    ignored."""
    declared, live = _by_name(declared), _by_name(live)
    if isinstance(declared, Mapping):
        for key, value in declared.items():
            inner = f"{path}.{key}" if path else str(key)
            live_value = live.get(key, ABSENT) if isinstance(live, Mapping) else ABSENT
            yield from overwritten(value, live_value, inner)
    elif not _same(declared, live) and not (declared in ({}, [], None) and live is ABSENT):
        yield FieldChange(path=path, before=declared, after=live)


def without_defaults(current: Any, expected: Any, declared: Any) -> Any:
    """``current`` as its manifest declared it: what equals ``expected``, which the API server makes
    of ``declared``, is as in ``declared``. ABSENT for what only the server sets."""
    if current == expected:
        return declared
    named = _by_name(current)
    if isinstance(named, Mapping):
        values = (_by_name(value) for value in (expected, declared))
        mappings = [value if isinstance(value, Mapping) else {} for value in values]
        left = {
            k: without_defaults(v, *(other.get(k, ABSENT) for other in mappings))
            for k, v in named.items()
        }
        left = {k: v for k, v in left.items() if v is not ABSENT}
        return left if named is current else list(left.values())
    if _are_parallel(current, expected) and _are_parallel(current, declared):
        return [
            without_defaults(*values) for values in zip(current, expected, declared, strict=True)
        ]
    return current


def _same(before: Any, after: Any) -> bool:
    """Compared as JSON: in Python 1 equals True, for an engine it does not."""
    if ABSENT in (before, after):
        return before is after
    return json.dumps(before, default=str) == json.dumps(after, default=str)


def _by_name(value: Any) -> Any:
    """A list of elements with unique names as a mapping; other values unchanged."""
    if isinstance(value, list) and value and all(isinstance(v, Mapping) for v in value):
        names = [v.get("name") for v in value]
        if all(isinstance(n, str) for n in names) and len(set(names)) == len(names):
            return dict(zip(names, value, strict=True))
    return value


def format_value(value: Any) -> str:
    """The value for a message, cut to 60 characters."""
    if isinstance(value, str | _Absent):
        text = str(value) or '""'
    else:
        text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:57]}…"
