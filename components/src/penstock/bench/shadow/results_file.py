"""The file of `--results`: written line by line, from which a run continues.

Its first line says which run it is. The others have the responses to one request, with text.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from penstock.bench.shadow.requests import ShadowRequest
from penstock.bench.shadow.response import ShadowResponse, ToolCall
from penstock.bench.shadow.run import Comparison, Pair
from penstock.errors import InputError
from penstock.files import PRIVATE, append

KIND, VERSION = "penstock bench shadow", 1


def header_of(run: Comparison, digest: str) -> dict[str, Any]:
    """What must be equal for a run to continue. Addresses may change. ``digest``: of the file of
    requests; empty for the requests of clients."""
    return {
        "kind": KIND,
        "version": VERSION,
        "requests_sha256": digest,
        "models": [endpoint.model for endpoint in run.endpoints],
        "as_sent": run.as_sent,
        "repeats": run.repeats,
        "seed": run.seed,
    }


class ResultsFile:
    """Open for appending; ``known`` are the pairs of an earlier run. Used with `with`."""

    def __init__(
        self,
        path: Path,
        header: Mapping[str, Any],
        requests: Sequence[ShadowRequest],
        warn: Callable[[str], None],
    ) -> None:
        """``requests``: of the file; those of clients are in the results themselves. InputError for
        a file of another kind or run, and one that cannot be written."""
        self._has_requests = not header["requests_sha256"]
        self._path, self._warn, self._is_writable = path, warn, True
        try:
            # With the line ends of the file: its length is that of the bytes.
            text = path.read_bytes().decode() if path.exists() else ""
            complete = text[: text.rfind("\n") + 1]
            self.known = self._read(complete, header, requests) if text else []
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE)
            os.fchmod(handle, PRIVATE)  # the responses can contain personal data
            os.ftruncate(handle, len(complete.encode()))  # a line that was cut off by a kill
            self._file = os.fdopen(handle, "ab", buffering=0)
            if not complete:
                self._write(header)
        except UnicodeDecodeError:
            raise self._foreign("is not UTF-8") from None
        except OSError as error:
            message = f"cannot be used: {error.strerror}"
            fix = "Name a file in a folder in which you may write."
            raise InputError(message, file=str(path), fix=fix) from None

    def __enter__(self) -> ResultsFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def keep(self, pair: Pair) -> None:
        """Append, so that a kill loses nothing. If the file can no longer be written, ``warn`` gets
        the reason, and the run goes on without the file."""
        if not self._is_writable:
            return
        responses = {"a": pair.first, "b": pair.second, "a_repeat": pair.repeat}
        request = pair.request
        of_client = {"path": request.path, "body": dict(request.body)} if self._has_requests else {}
        values = {name: each and asdict(each) for name, each in responses.items()}
        try:
            self._write({"id": request.id, **of_client, **values})
        except OSError as error:
            self._is_writable = False
            reason = f"{self._path} cannot be written: {error.strerror}"
            self._warn(f"{reason}; the run goes on without it")

    def _write(self, value: Mapping[str, Any]) -> None:
        append(self._file, json.dumps(value).encode() + b"\n")

    def _read(
        self, text: str, header: Mapping[str, Any], requests: Sequence[ShadowRequest]
    ) -> list[Pair]:
        by_id = {request.id: request for request in requests}
        pairs: dict[str, Pair] = {}  # a repeat comes in a second line for its request
        lines = text.split("\n")[:-1]
        for number, line in enumerate(lines, start=1):
            try:
                value = json.loads(line)
                if number == 1:
                    self._require_same(value, header)
                else:
                    pair = _pair_of(value, by_id.get(value["id"]) or _request_of(value))
                    pairs[pair.request.id] = pair
            except (ValueError, TypeError, KeyError, AttributeError):
                raise self._foreign("is not a line of penstock bench shadow", number) from None
        if not lines:
            raise self._foreign("is not a file of penstock bench shadow")
        return list(pairs.values())

    def _require_same(self, value: Mapping[str, Any], header: Mapping[str, Any]) -> None:
        if value["kind"] != KIND:
            raise ValueError
        for key, expected in header.items():
            if value[key] != expected:
                message = f"belongs to a run {_difference(key, value[key], expected)}"
                fix = "Name a new file, or use the options of that run."
                raise InputError(message, file=str(self._path), line=1, fix=fix)

    def _foreign(self, message: str, line: int | None = None) -> InputError:
        fix = "Name another file, or remove it first."
        return InputError(message, file=str(self._path), line=line, fix=fix)


def _difference(key: str, actual: Any, expected: Any) -> str:
    """Of two headers, in the words of the command line."""
    if key == "version":
        return "of another version of penstock"
    if key == "requests_sha256" and not (actual and expected):
        return f"with {'--file' if actual else '--listen'}"
    if key == "requests_sha256":
        return "with a different request file"
    if key == "as_sent":
        return "with --as-sent" if actual else "without --as-sent"
    if key == "models":
        return f"with {_models(actual)}, not {_models(expected)}"
    return f"with --{key} {actual}, not {expected}"


def _models(names: Sequence[str | None]) -> str:
    """Those of A and B; None for the model of each request."""
    if not any(names):
        return "--keep-model"
    first, second = names
    if first is None:
        return f"--model-b {second}"
    return f"model {first}" if first == second else f"models {first} and {second}"


def _request_of(value: Mapping[str, Any]) -> ShadowRequest:
    """Of a client. KeyError if it is not in the results."""
    int(value["id"])
    return ShadowRequest(id=value["id"], path=value["path"], body=dict(value["body"]))


def _pair_of(value: Mapping[str, Any], request: ShadowRequest) -> Pair:
    repeat = value["a_repeat"]
    return Pair(
        request=request,
        first=_response_of(value["a"]),
        second=_response_of(value["b"]),
        repeat=None if repeat is None else _response_of(repeat),
    )


def _response_of(value: Mapping[str, Any]) -> ShadowResponse:
    calls = tuple(ToolCall(**tool_call) for tool_call in value["tool_calls"])
    return ShadowResponse(**{**value, "tool_calls": calls})
