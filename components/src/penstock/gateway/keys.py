"""Read the file with API keys for the local Envoy. No message shows a key.

The format is that of `kubectl create secret generic NAME --from-env-file=FILE`: CLIENT=KEY.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from shlex import quote

from penstock.errors import InputError, Problem
from penstock.graph.text_file import read_text_file

SHORTEST_KEY = 16
CLIENT = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")  # kubectl's rule for names
KEY = re.compile(r"[!-~]+")


def load_keys(path: Path) -> dict[str, str]:
    """Client → key. InputError with every problem, also when other users can read the file."""
    text = read_text_file(path)
    if path.stat().st_mode & 0o077:
        problem = Problem(
            file=str(path),
            message="other users can read the keys",
            fix=f"Run `chmod 600 {quote(str(path))}`.",
        )
        raise InputError(problem)
    return parse_keys(text, str(path))


def parse_keys(text: str, source: str) -> dict[str, str]:
    """Client → key; ``source`` is the file, for messages."""
    keys: dict[str, str] = {}
    problems: list[Problem] = []
    for number, raw in enumerate(text.split("\n"), start=1):
        line = raw.rstrip("\r").lstrip()
        if not line or line.startswith("#"):
            continue
        client, _, key = line.partition("=")
        for message, fix in _line_problems(client, key, "=" in line, keys):
            problems.append(Problem(file=source, line=number, message=message, fix=fix))
        keys.setdefault(client, key)
    if not keys:
        fix = "Write a line CLIENT=KEY for each client."
        problems.append(Problem(file=source, message="contains no key", fix=fix))
    if problems:
        raise InputError(*problems)
    return keys


def _line_problems(
    client: str, key: str, separated: bool, known: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """(message, fix). A line without '=' may be a key, so it is never shown."""
    if not separated or not CLIENT.fullmatch(client):
        message = "is not CLIENT=KEY with a client of letters, digits, '-', '_' and '.'"
        yield message, "Write it as team-a=KEY."
        return
    if client in known:
        yield f"client {client} is listed twice", "Give each client one key."
    elif key and key in known.values():
        yield f"client {client} has the key of another client", "Give each client its own key."
    if len(key) < SHORTEST_KEY:
        message = f"the key of client {client} is shorter than {SHORTEST_KEY} characters"
        yield message, "Generate one with `openssl rand -hex 24`."
    elif not KEY.fullmatch(key):
        message = f"the key of client {client} contains a space or a non-ASCII character"
        yield message, "Generate one with `openssl rand -hex 24`."
