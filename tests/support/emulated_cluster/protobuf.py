"""Decode Secrets as Helm sends them, in Kubernetes' protobuf format."""

from __future__ import annotations

import base64
from typing import Any

MAGIC = b"k8s\x00"


def secret(raw: bytes) -> dict[str, Any]:
    """The JSON form of an encoded Secret (k8s.io/api/core/v1/generated.proto)."""
    body = _fields(_fields(raw.removeprefix(MAGIC))[2][0])
    meta = _fields(body[1][0])
    labels = [_fields(entry) for entry in meta.get(11, [])]
    data = [_fields(entry) for entry in body.get(2, [])]
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": meta[1][0].decode(),
            "labels": {label[1][0].decode(): label[2][0].decode() for label in labels},
        },
        "data": {e[1][0].decode(): base64.b64encode(e[2][0]).decode() for e in data},
        "type": body[3][0].decode(),
    }


def _fields(raw: bytes) -> dict[int, list[bytes]]:
    """The length-delimited fields of a message by number."""
    fields: dict[int, list[bytes]] = {}
    at = 0
    while at < len(raw):
        tag, at = _varint(raw, at)
        value, at = _varint(raw, at)
        if tag & 7 == 2:
            fields.setdefault(tag >> 3, []).append(raw[at : at + value])
            at += value
    return fields


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (raw[at] & 127) << shift
        shift += 7
        at += 1
        if not raw[at - 1] & 128:
            return value, at
