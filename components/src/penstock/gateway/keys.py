"""The file with clients and their keys, for the local Envoy; no message ever shows a key.

It is the file that `kubectl create secret generic NAME --from-env-file=FILE` takes: CLIENT=KEY.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from penstock.errors import InputError, Problem
from penstock.graph.load import read_text_file

SHORTEST_KEY = 16
CLIENT = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")  # what kubectl takes as a name
KEY = re.compile(r"[!-~]+")


def load_keys(path: Path) -> dict[str, str]:
    """Client → key; InputError with every problem, and where others may read the file."""
    text = read_text_file(path)
    if path.stat().st_mode & 0o077:
        problem = Problem(
            file=str(path), message="others may read the keys", fix=f"chmod 600 {path.name}"
        )
        raise InputError(problem)
    return parse_keys(text, str(path))


def parse_keys(text: str, source: str) -> dict[str, str]:
    """Client → key of the text of such a file."""
    keys: dict[str, str] = {}
    problems: list[Problem] = []
    for number, raw in enumerate(text.split("\n"), start=1):
        line = raw.rstrip("\r").lstrip()
        if not line or line.startswith("#"):
            continue
        client, _, key = line.partition("=")
        for message, fix in _wrong(client, key, "=" in line, keys):
            problems.append(Problem(file=source, line=number, message=message, fix=fix))
        keys.setdefault(client, key)
    if not keys:
        fix = "write a line CLIENT=KEY for each client"
        problems.append(Problem(file=source, message="holds no key", fix=fix))
    if problems:
        raise InputError(*problems)
    return keys


def _wrong(
    client: str, key: str, separated: bool, known: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """(message, fix). Where '=' is missing the whole line may be a key: nothing of it is shown."""
    if not separated or not CLIENT.fullmatch(client):
        message = "is not CLIENT=KEY with a client of letters, digits, '-', '_' and '.'"
        yield message, "write, for instance, team-a=KEY"
        return
    if client in known:
        yield f"client {client} stands twice", "give each client one key"
    elif key and key in known.values():
        yield f"client {client} has the key of another client", "give each client its own"
    if len(key) < SHORTEST_KEY:
        message = f"the key of client {client} is shorter than {SHORTEST_KEY} characters"
        yield message, "make one: openssl rand -hex 24"
    elif not KEY.fullmatch(key):
        message = f"the key of client {client} holds a blank or a character outside ASCII"
        yield message, "make one: openssl rand -hex 24"
