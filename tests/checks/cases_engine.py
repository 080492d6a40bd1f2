"""Cases."""

from __future__ import annotations

from tests.checks.support import Case

CASES: tuple[Case, ...] = ()
