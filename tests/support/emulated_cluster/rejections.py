"""The recorded rejections of a real API server, to be injected into the emulated one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.emulated_cluster.api_server import NOT_FOUND
from tests.support.emulated_cluster.store import ApiError


@dataclass(frozen=True, kw_only=True)
class Rejection:
    """A recorded response with a status of at least 400."""

    file: str
    what: str
    method: str
    path: str
    status: int
    body: Any

    @property
    def plural(self) -> str:
        """The resource with its subresource: `pods`, `pods/log`."""
        match = re.search(r"/namespaces/[^/?]+/([a-z]+)(?:/[^/?]+)?(/[a-z]+)?", self.path)
        if match:
            return match[1] + (match[2] or "")
        return self.path.partition("?")[0].rstrip("/").rpartition("/")[2]

    @property
    def error(self) -> ApiError:
        """With the recorded body; a text stands for itself."""
        if not isinstance(self.body, dict):
            is_unknown = str(self.body).strip() == NOT_FOUND
            return ApiError(self.status, "", NOT_FOUND if is_unknown else str(self.body).strip())
        error = ApiError(self.status, self.body.get("reason", ""), self.body.get("message", ""))
        error.status = self.body
        return error

    @property
    def reasons(self) -> tuple[str, ...]:
        """The ends of its messages, one of which a user must see."""
        if not isinstance(self.body, dict):
            return (str(self.body).partition(",")[0].strip(),)
        causes = (self.body.get("details") or {}).get("causes") or ()
        texts = [self.body.get("message", ""), *(c.get("message", "") for c in causes)]
        return tuple(text.splitlines()[0][-30:] for text in texts if text)


def rejections(folder: Path) -> Iterator[Rejection]:
    """Those of `errors/`; of a file about one namespace, of its apply and its pod."""
    for file in sorted(folder.glob("*.json")):
        content = json.loads(file.read_text())
        if isinstance(content, dict):
            names = [n for n in ("apply", "podDirectly") if n in content]
            content = [{"what": name, **content[name]} for name in names]
        for entry in content:
            request, response = entry["request"], entry["response"]
            if response["status"] >= 400:
                yield Rejection(
                    file=file.stem,
                    what=entry["what"],
                    method=request["method"],
                    path=request["path"],
                    status=response["status"],
                    body=response.get("body"),
                )
