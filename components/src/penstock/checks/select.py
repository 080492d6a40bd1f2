"""Which rules are reported: `--select` and `--ignore`, by id or by the beginning of ids."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.checks.registry import all_rules
from penstock.checks.suppress import ALWAYS
from penstock.errors import Problem, UsageError
from penstock.text.names import nearest

ALL = "PS"
_ID = re.compile(r"[A-Z]+\d{3,}")
LIST = "Run `penstock check --list-rules`, which lists the rules."


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Beginnings of rule ids. The longest that fits a rule decides; of equal ones, `ignore`."""

    # Empty: all.
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()

    def includes(self, rule: str) -> bool:
        if rule in ALWAYS:
            return True
        ignored = _longest(rule, self.ignore)
        return _longest(rule, self.select) > ignored if self.select else not ignored


def selection(select: Sequence[str], ignore: Sequence[str]) -> Selection:
    """The selection of the options' values, each a list with commas, in any case. Raises
    UsageError."""
    selected, ignored = _prefixes("--select", select), _prefixes("--ignore", ignore)
    for prefix in ignored:
        if prefix in ALWAYS:
            raise UsageError(
                f"--ignore {prefix}: {', '.join(ALWAYS)} cannot be ignored, because a file that "
                "cannot be read is not checked"
            )
    return Selection(select=selected, ignore=ignored)


def _longest(rule: str, prefixes: Sequence[str]) -> int:
    return max((len(prefix) for prefix in prefixes if rule.startswith(prefix)), default=0)


def _prefixes(option: str, values: Sequence[str]) -> tuple[str, ...]:
    prefixes = tuple(part.strip().upper() for text in values for part in text.split(","))
    for prefix in prefixes:
        is_beginning = any(rule.id.startswith(prefix) for rule in all_rules())
        if not (is_beginning and _has_known_letters(prefix)):
            raise UsageError(_unknown(option, prefix))
    return prefixes


def known_rule(text: str) -> str:
    """The id of one rule, in any case. Raises UsageError."""
    ids = [name for rule in all_rules() for name in (rule.id, rule.group) if name]
    if text.upper() in ids:
        return text.upper()
    near = "" if _is_id(text.upper()) else nearest(text, ids)
    fix = f"Did you mean {near}?" if near else LIST
    raise UsageError(f"there is no rule {text!r}", place="--explain", fix=fix)


def _has_known_letters(text: str) -> bool:
    """Whether a text begins with the letters of rules, such as PS."""
    letters = {rule.id.rstrip("0123456789") for rule in all_rules()}
    return text.rstrip("0123456789") in letters


def _is_id(text: str) -> bool:
    return bool(_ID.fullmatch(text)) and _has_known_letters(text)


def _unknown(option: str, prefix: str) -> Problem:
    if _is_id(prefix):  # a similar number is another rule
        return Problem(place=option, message=f"there is no rule {prefix}", fix=LIST)
    ids = [rule.id for rule in all_rules()]
    known = [ALL, *dict.fromkeys(rule[:3] for rule in ids), *ids]
    # Ids that begin in the same way are nearer than those with the same digits in another order.
    similar = [name for name in known if prefix and name.startswith(prefix[:4])]
    close = nearest(prefix, similar or known)
    message = f"{prefix!r} is not the beginning of a rule id"
    fix = f"Did you mean {close}?" if close else LIST
    return Problem(place=option, message=message, fix=fix)
