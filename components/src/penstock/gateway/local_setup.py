"""Build and validate the LocalSetup from the options of `penstock gateway up`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import urlsplit

from penstock.errors import UsageError
from penstock.gateway.envoy import Address, Certificate, LocalSetup
from penstock.gateway.policy import Policy
from penstock.strict_yaml.problems import did_you_mean


def local_setup(
    policy: Policy,
    listen: Address,
    backends: Sequence[str],
    shadow: str | None,
    keys: Mapping[str, str],
    certificate: Certificate | None = None,
) -> LocalSetup:
    """Every release of the policy with its URL; UsageError with all that is wrong."""
    wrong: list[str] = []
    given = dict(_pairs(backends, wrong))
    wanted = [b.release for b in policy.backends]
    wrong += [_unknown(name, wanted) for name in given if name not in wanted]
    for backend in policy.backends:
        if backend.release not in given and backend.share:
            wrong.append(f"no URL for {backend.release}: add --backend {backend.release}=URL")
    if policy.shadow is None and shadow is not None:
        wrong.append(
            "--shadow is given, but the gateway has no shadow section: add one, or drop it"
        )
    if policy.shadow is not None and shadow is None:
        wrong.append(f"the shadow {policy.shadow.release} has no URL: add --shadow URL")
    elif policy.shadow is not None and shadow is not None:
        given[policy.shadow.release] = shadow
    frontends = {name: a for name, url in given.items() if (a := _address(name, url, wrong))}
    if wrong:
        raise UsageError(*wrong)
    return LocalSetup(listen=listen, frontends=frontends, keys=keys, certificate=certificate)


def _pairs(words: Sequence[str], wrong: list[str]) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    for word in words:
        name, separator, url = word.partition("=")
        if not separator:
            wrong.append(f"--backend {word}: write RELEASE=URL")
        elif name in seen:
            wrong.append(f"--backend {name} is given twice")
        else:
            seen.add(name)
            yield name, url


def _unknown(name: str, wanted: list[str]) -> str:
    hint = did_you_mean(name, wanted) or f"the gateway's backends: {', '.join(wanted)}"
    return f"--backend {name}: the gateway has no such backend; {hint}"


def _address(name: str, url: str, wrong: list[str]) -> Address | None:
    """Host and port of http://HOST:PORT or, as `penstock up` prints it, with /v1 behind."""
    parts = urlsplit(url)
    try:
        port = parts.port or 80
    except ValueError:
        port = 0
    host = {"localhost": "127.0.0.1"}.get(parts.hostname or "", parts.hostname or "")
    numeric = re.fullmatch(r"[0-9.]+|[0-9a-f:]*:[0-9a-f:]*", host)
    plain = parts.scheme == "http" and not parts.query and parts.username is None
    if not (plain and port and numeric and parts.path in ("", "/", "/v1", "/v1/")):
        wrong.append(f"{name}: {parts.scheme or 'the URL'} … is not http://ADDRESS:PORT")
        return None
    return Address(host=host, port=port)
