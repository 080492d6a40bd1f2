"""Whether a command runs a shell, and the script that it gives it."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence

_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh"})


def is_shell(argv: Sequence[str]) -> bool:
    return bool(argv) and posixpath.basename(argv[0]) in _SHELLS


def shell_script(argv: list[str], files: dict[str, str]) -> tuple[str, str, list[str], bool] | None:
    """Script, `$0`, arguments, and whether it is bash; None if the script is not available."""
    if not argv:
        return None
    if not is_shell(argv):
        return _file_script(argv, files)
    is_bash = posixpath.basename(argv[0]) in ("bash", "zsh", "ksh")
    index = 1
    takes_script = False
    while index < len(argv) and argv[index][:1] in "-+" and argv[index] not in ("-", "--"):
        option = argv[index]
        takes_script = takes_script or (not option.startswith("--") and "c" in option)
        index += 2 if option in ("-o", "+o", "-O", "--rcfile", "--init-file") else 1
    if index < len(argv) and argv[index] == "--":
        index += 1
    if index >= len(argv):
        return None
    if takes_script:
        rest = argv[index + 1 :]
        return argv[index], rest[0] if rest else argv[0], rest[1:], is_bash
    text = files.get(argv[index])
    return (text, argv[index], argv[index + 1 :], is_bash) if text is not None else None


def _file_script(argv: list[str], files: dict[str, str]) -> tuple[str, str, list[str], bool] | None:
    """A script from a ConfigMap that is started by its path."""
    text = files.get(argv[0])
    match = re.match(r"#!\s*(?:/usr/bin/env\s+)?\S*?(\w+)\s*\n", text or "")
    if text is None or match is None or match.group(1) not in _SHELLS:
        return None
    return text, argv[0], argv[1:], match.group(1) == "bash"
