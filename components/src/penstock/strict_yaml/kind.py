"""Kinds of input file: what each is called in messages, and what its YAML may contain; limits."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

MOST_REPLICAS = 10_000  # of one component; Kubernetes supports 5,000 nodes in a cluster
# Of a graph or an engine's file. Some rules compare each key with all others; a list of CUDA graph
# sizes has up to 512 items.
MOST_KEYS, MOST_ITEMS = 1000, 5000
# Of a file that are listed: one with more is of another kind, or was written by a program.
MOST_PROBLEMS = 100


class Dialect(StrEnum):
    """Which YAML a kind of file accepts."""

    # Only what every YAML library reads alike: no anchors, aliases, tags or ambiguous scalars.
    STRICT = "strict"
    # What `kubectl apply` accepts, with the values that Kubernetes reads.
    KUBERNETES = "kubernetes"


class RepeatedKeys(StrEnum):
    """Whether a mapping may have the same key twice."""

    REFUSED = "refused"
    # Only if the last value replaces an empty or an equal one.
    WITHOUT_LOSS = "without loss"
    ALLOWED = "allowed"


@dataclass(frozen=True, kw_only=True)
class DocumentKind:
    """One kind of input file."""

    # With its article, as messages use it: "a graph".
    name: str
    # Where to find a file to start from, for the fix of an empty file.
    example: str = ""
    dialect: Dialect = Dialect.STRICT
    # False if a line may hold a secret: then no message quotes the line that cannot be parsed.
    may_quote_lines: bool = True
    # Whether `helm install -f` also reads the file, so that messages say what Helm would do.
    is_read_by_helm: bool = False
    repeated_keys: RepeatedKeys = RepeatedKeys.REFUSED
    # Who uses the last of two equal keys, for messages: "the engine uses".
    reads_last: str = ""
    # Whether a file with more than MOST_KEYS keys or MOST_ITEMS items of lists is refused.
    is_small: bool = False
    # How to share a value in this kind of file, which has no aliases.
    sharing: str = ""
