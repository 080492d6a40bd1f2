"""Where the frontend's /openapi.json and its behavior differ, as schemathesis finds it.

`openapi.py` runs schemathesis and compares. A kind is a code of schemathesis, an operation and the
status of the response.
"""

from __future__ import annotations

from dataclasses import dataclass

OPTIONAL = (
    *("audio/speech", "classify", "images/edits", "images/generations", "pooling"),
    *("realtime", "rerank", "videos", "videos/stream"),
)
GENERATING = ("chat/completions", "completions", "embeddings", "responses")


@dataclass(frozen=True)
class Kind:
    """One kind of deviation."""

    code: str
    operation: str
    status: int | None = None


@dataclass(frozen=True)
class Deviation:
    """Kinds with one cause."""

    text: str
    kinds: frozenset[Kind]


def _of(code: str, names: tuple[str, ...], status: int | None) -> frozenset[Kind]:
    """``names`` without the method and /v1."""
    method = {"realtime": "GET"}
    return frozenset(Kind(code, f"{method.get(n, 'POST')} /v1/{n}", status) for n in names)


DEVIATIONS = (
    Deviation(
        "The schemas of request bodies list Dynamo's extensions, but not `model`, `messages`, "
        "`prompt`, `input` and their limits. So many bodies that match a schema get a 400. For "
        "embeddings, the adapter sends this 400, because the graph's models do not support them.",
        _of("ST202", GENERATING, 400),
    ),
    Deviation(
        "The status 415, for a content type other than JSON, is not documented.",
        _of("ST103", (*GENERATING, "responses/input_tokens"), 415)
        | _of("ST202", ("responses/input_tokens",), 415),
    ),
    Deviation(
        "`/v1/responses` accepts bodies that do not match its schema: it ignores `nvext` and "
        "`thinking_token_budget` of a wrong type.",
        _of("ST201", ("responses",), 200),
    ),
    Deviation(
        "Routes that no model of the graph serves are listed. They respond 404 to every method, "
        "instead of 405 to a method that is not declared.",
        _of("ST204", OPTIONAL, 404),
    ),
    Deviation(
        "The path parameter of a model's routes is not declared.",
        frozenset(
            {
                Kind("InvalidSchema", "GET /v1/models/{*model_id}"),
                Kind("InvalidSchema", "GET /v1/models/{model_id}/ready"),
            }
        ),
    ),
)
KNOWN = frozenset[Kind]().union(*(deviation.kinds for deviation in DEVIATIONS))
