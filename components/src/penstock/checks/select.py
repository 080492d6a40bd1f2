"""Which rules are reported: `--select` and `--ignore`, by id or by the beginning of ids."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.checks.registry import RULES
from penstock.checks.suppress import ALWAYS
from penstock.errors import Problem, UsageError
from penstock.nearest import nearest

ALL = "PS"
_ID = re.compile(r"PS\d{3,}")
LIST = "Run `penstock check --list-rules`, which lists the rules."


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Beginnings of rule ids. The longest that fits a rule decides; of equal ones, `ignore`."""

    select: tuple[str, ...] = (ALL,)
    ignore: tuple[str, ...] = ()

    def includes(self, rule: str) -> bool:
        if rule in ALWAYS:
            return True
        return _longest(rule, self.select) > _longest(rule, self.ignore)


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
    return Selection(select=selected or (ALL,), ignore=ignored)


def _longest(rule: str, prefixes: Sequence[str]) -> int:
    return max((len(prefix) for prefix in prefixes if rule.startswith(prefix)), default=0)


def _prefixes(option: str, values: Sequence[str]) -> tuple[str, ...]:
    found = tuple(part.strip().upper() for value in values for part in value.split(","))
    for prefix in found:
        if not (prefix.startswith(ALL) and any(rule.id.startswith(prefix) for rule in RULES)):
            raise UsageError(_unknown(option, prefix))
    return found


def known_rule(text: str) -> str:
    """The id of one rule, in any case. Raises UsageError."""
    ids = [rule.id for rule in RULES]
    if text.upper() in ids:
        return text.upper()
    near = "" if _ID.fullmatch(text.upper()) else nearest(text, ids)
    fix = f"Did you mean {near}?" if near else LIST
    raise UsageError(Problem(place="--explain", message=f"there is no rule {text!r}", fix=fix))


def _unknown(option: str, prefix: str) -> Problem:
    if _ID.fullmatch(prefix):  # a similar number is another rule
        return Problem(place=option, message=f"there is no rule {prefix}", fix=LIST)
    ids = [rule.id for rule in RULES]
    known = [ALL, *dict.fromkeys(rule[:3] for rule in ids), *ids]
    # Ids that begin in the same way are nearer than those with the same digits in another order.
    similar = [name for name in known if prefix and name.startswith(prefix[:4])]
    close = nearest(prefix, similar or known)
    message = f"{prefix!r} is not the beginning of a rule id"
    fix = f"Did you mean {close}?" if close else LIST
    return Problem(place=option, message=message, fix=fix)
