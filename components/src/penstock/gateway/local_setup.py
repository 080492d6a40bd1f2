"""Build and validate the LocalSetup from the options of `penstock gateway up`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import urlsplit

from penstock.errors import UsageError
from penstock.gateway.envoy import Address, Certificate, LocalSetup
from penstock.gateway.policy import Policy
from penstock.nearest import did_you_mean


def local_setup(
    policy: Policy,
    listen: Address,
    backends: Sequence[str],
    shadow: str | None,
    keys: Mapping[str, str],
    certificate: Certificate | None = None,
) -> LocalSetup:
    """The address of every release of the policy. UsageError with every problem."""
    problems: list[str] = []
    given = dict(_pairs(backends, problems))
    releases = [b.release for b in policy.backends]
    problems += [_unknown(name, releases) for name in given if name not in releases]
    for backend in policy.backends:
        if backend.release not in given and backend.share:
            problems.append(f"no URL for {backend.release}: add --backend {backend.release}=URL")
    if policy.shadow is None and shadow is not None:
        problems.append(
            "--shadow is given, but the gateway file has no shadow section: add one, or remove it"
        )
    if policy.shadow is not None and shadow is None:
        problems.append(f"the shadow {policy.shadow.release} has no URL: add --shadow URL")
    elif policy.shadow is not None and shadow is not None:
        given[policy.shadow.release] = shadow
    frontends = {name: a for name, url in given.items() if (a := _address(name, url, problems))}
    if problems:
        raise UsageError(*problems)
    return LocalSetup(listen=listen, frontends=frontends, keys=keys, certificate=certificate)


def _pairs(arguments: Sequence[str], problems: list[str]) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    for argument in arguments:
        name, separator, url = argument.partition("=")
        if not separator:
            problems.append(f"--backend {argument}: write RELEASE=URL")
        elif name in seen:
            problems.append(f"--backend {name} is given twice")
        else:
            seen.add(name)
            yield name, url


def _unknown(name: str, releases: list[str]) -> str:
    hint = did_you_mean(name, releases) or f"its backends: {', '.join(releases)}"
    return f"--backend {name}: not in the gateway file; {hint}"


def _address(name: str, url: str, problems: list[str]) -> Address | None:
    """Host and port of http://HOST:PORT, optionally followed by /v1, as `penstock up` prints it."""
    parts = urlsplit(url)
    try:
        port = parts.port or 80
    except ValueError:
        port = 0
    host = {"localhost": "127.0.0.1"}.get(parts.hostname or "", parts.hostname or "")
    numeric = re.fullmatch(r"[0-9.]+|[0-9a-f:]*:[0-9a-f:]*", host)
    plain = parts.scheme == "http" and not parts.query and parts.username is None
    if not (plain and port and numeric and parts.path in ("", "/", "/v1", "/v1/")):
        problems.append(f"{name}: {parts.scheme or 'the URL'} … is not http://ADDRESS:PORT")
        return None
    return Address(host=host, port=port)
