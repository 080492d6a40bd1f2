"""An error in OpenAI's format."""

from __future__ import annotations

from dataclasses import dataclass

from .prompt import Body

UNSUPPORTED = "unsupported_parameter"


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """A response with OpenAI's error body."""

    message: str
    param: str | None
    code: str | None
    status: int = 400

    def body(self) -> Body:
        error = {"message": self.message, "type": _type(self.status)}
        return {"error": error | {"param": self.param, "code": self.code}}


def _type(status: int) -> str:
    if status == 429:
        return "rate_limit_error"
    return "invalid_request_error" if status < 500 else "server_error"
