"""Edits of the weights in a gateway file, and of nothing else in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from penstock.errors import InputError, Problem, RolloutError
from penstock.gateway.model import Gateway, parse_gateway
from penstock.graph.edit import write_text
from penstock.graph.text_file import read_text_file
from penstock.strict_yaml.loader import SafeLoader
from penstock.text.names import did_you_mean

FINEST = 100  # of the sum of both weights: the smallest step is 1%


@dataclass(kw_only=True)
class GatewayFile:
    """The file of a gateway with an old and a new release among its backends."""

    path: Path
    old: str
    new: str
    _first: str
    _written: str = field(default="")

    @classmethod
    def open(cls, path: Path, new: str) -> GatewayFile:
        """InputError or GraphError if the file cannot be read, or if it does not have the new
        release and one other that serves."""
        text = read_text_file(path)
        gateway = parse_gateway(text, str(path))
        file = cls(path=path, old=_old(gateway, new, str(path)), new=new, _first=text)
        file._written = text
        return file

    @property
    def gateway(self) -> Gateway:
        """As last written."""
        return parse_gateway(self._written, str(self.path))

    @property
    def percent(self) -> int:
        """Share of the new release in the requests of both."""
        weights = {b.release: b.weight for b in self.gateway.backends}
        return round(100 * weights[self.new] / (weights[self.new] + weights[self.old]))

    def set_percent(self, percent: int, *, copies: int = 0) -> None:
        """Write the shares of both releases, and the share of the copies for the new one in
        percent; 0: none. RolloutError if the file was edited meanwhile."""
        both = {self.old, self.new}
        total = sum(b.weight for b in self.gateway.backends if b.release in both)
        others = len(self.gateway.backends) > len(both)
        if total < FINEST and others:
            fix = "Multiply all weights of the file by the same factor."
            message = f"the weights of {self.old} and {self.new} are too small for steps of 1%"
            raise InputError(message, file=str(self.path), place="backends", fix=fix)
        total = max(total, FINEST)
        share = round(total * percent / 100)
        text = with_weights(self._first, {self.old: total - share, self.new: share})
        if copies:
            text = f"{text.rstrip()}\nshadow: {{release: {self.new}, percent: {copies}}}\n"
        self._write(text)

    def restore(self) -> None:
        """Undo all edits. RolloutError as `set_percent`."""
        self._write(self._first)

    def _write(self, text: str) -> None:
        if read_text_file(self.path) != self._written:
            raise RolloutError(
                "was edited during the shift, which ends here",
                file=str(self.path),
                fix="Check its weights, and start the shift again.",
            )
        parse_gateway(text, str(self.path))
        write_text(self.path, text)
        self._written = text


def _old(gateway: Gateway, new: str, source: str) -> str:
    names = [backend.release for backend in gateway.backends]
    if new not in names:
        hint = did_you_mean(new, names) or f"Add `- {{release: {new}, weight: 0}}`."
        raise InputError(f"{new} is not in the file", file=source, place="backends", fix=hint)
    serving = [b.release for b in gateway.backends if b.weight and b.release != new]
    if len(serving) != 1:
        found = ", ".join(serving) or "none"
        message = f"{new} must replace one release that serves clients, found {found}"
        fix = "Set the weights of the others to 0, or leave one release that serves."
        raise InputError(message, file=source, place="backends", fix=fix)
    if gateway.shadow is not None:
        fix = "Remove the section `shadow` for the time of the shift."
        raise InputError(
            Problem(file=source, place="shadow", message="the gateway has a shadow", fix=fix)
        )
    return serving[0]


def with_weights(text: str, weights: Mapping[str, int]) -> str:
    """The text with the weights of these releases, spliced in: all other bytes stay."""
    offset = 1 if text.startswith("\ufeff") else 0  # libyaml's marks do not count it
    root = yaml.compose(text[offset:], Loader=SafeLoader)
    splices = []
    for backend in _entry(root, "backends").value:
        release = _entry(backend, "release").value
        if release in weights:
            node = _entry(backend, "weight")
            splices.append((node.start_mark.index, node.end_mark.index, weights[release]))
    for start, end, weight in sorted(splices, reverse=True):
        text = f"{text[: start + offset]}{weight}{text[end + offset :]}"
    return text


def _entry(node: yaml.Node | None, name: str) -> yaml.Node:
    assert isinstance(node, yaml.MappingNode)
    found: yaml.Node = next(value for key, value in node.value if key.value == name)
    return found
