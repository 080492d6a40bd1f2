"""Edits of the weights in a gateway file, and of nothing else in it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import InputError, RolloutError
from penstock.gateway.model import Gateway, parse_gateway
from penstock.graph.edit import set_scalar, write_text
from penstock.graph.text_file import read_text_file
from penstock.text.names import did_you_mean

FINEST = 100  # of the sum of both weights: the smallest step is 1%
SET = "Set the weights in it, apply it, and start the shift again."


@dataclass(kw_only=True)
class GatewayFile:
    """The file of a gateway with an old and a new release among its backends."""

    path: Path
    old: str
    new: str
    _first: str
    """Without a section `shadow` that a killed shift has left."""
    _written: str

    @classmethod
    def open(cls, path: Path, new: str) -> GatewayFile:
        """InputError or GraphError if the file cannot be read, or if it does not have the new
        release and one other that serves."""
        text = read_text_file(path)
        first = re.sub(rf"\nshadow: \{{release: {re.escape(new)}, percent: \d+\}}\n\Z", "\n", text)
        old = _old(parse_gateway(first, str(path)), new, str(path))
        return cls(path=path, old=old, new=new, _first=first, _written=text)

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
        self.require_unedited()
        text = self._text(percent, copies)
        parse_gateway(text, str(self.path))
        write_text(self.path, text)
        self._written = text

    def require_editable(self, steps: Iterable[int]) -> None:
        """InputError or GraphError if a step cannot be written."""
        for percent, copies in ((0, 100), *((percent, 0) for percent in steps)):
            parse_gateway(self._text(percent, copies), str(self.path))

    def restore(self) -> bool:
        """Give all requests to the old release; whether the file could be written. If not, or if
        it was edited meanwhile, it stays as it is; `gateway` is that of the old release anyway."""
        weights = {b.release: b.weight for b in parse_gateway(self._first, str(self.path)).backends}
        text = self._text(0, 0) if weights[self.new] else self._first
        before, self._written = self._written, text
        try:
            if read_text_file(self.path) != before:
                return False
            write_text(self.path, text)
        except (InputError, OSError):
            return False
        return True

    def require_unedited(self) -> None:
        """RolloutError if the file was edited."""
        if read_text_file(self.path) != self._written:
            raise RolloutError("was edited during the shift", file=str(self.path), fix=SET)

    def _text(self, percent: int, copies: int) -> str:
        backends = self.gateway.backends
        both = {self.old, self.new}
        total = sum(b.weight for b in backends if b.release in both)
        if not any(b.weight for b in backends if b.release not in both):
            total = FINEST
        if total < FINEST:
            message = (
                f"the weights of {self.old} and {self.new} are {total} together, and steps of 1% "
                f"need {FINEST}"
            )
            fix = "Multiply all weights of the file by the same factor."
            raise InputError(message, file=str(self.path), place="backends", fix=fix)
        share = round(total * percent / 100)
        text, weights = self._first, {self.old: total - share, self.new: share}
        for index, backend in enumerate(backends):
            if backend.release in weights:
                place = ("backends", index, "weight")
                text = set_scalar(text, place, str(weights[backend.release]))
        if copies:
            text = f"{text.rstrip()}\nshadow: {{release: {self.new}, percent: {copies}}}\n"
        return text


def _old(gateway: Gateway, new: str, source: str) -> str:
    names = [backend.release for backend in gateway.backends]
    if new not in names:
        hint = did_you_mean(new, names) or f"Add `- {{release: {new}, weight: 0}}`."
        raise InputError(f"{new} is not in the file", file=source, place="backends", fix=hint)
    serving = [b.release for b in gateway.backends if b.weight and b.release != new]
    if len(serving) != 1:
        message = f"{new} can replace one release, but {' and '.join(serving)} serve clients"
        fix = "Set the weights of all but one of them to 0."
        if not serving:
            message = f"{new} already gets all requests"
            fix = "Name another release, or set the weight of the one to replace to 100."
        raise InputError(message, file=source, place="backends", fix=fix)
    if gateway.shadow is not None:
        message = f"the gateway has the shadow {gateway.shadow.release}"
        fix = "Remove the section `shadow`, apply the file, and start the shift again."
        raise InputError(message, file=source, place="shadow", fix=fix)
    return serving[0]
