"""Rules about pods."""

from penstock.checks.rules.pods import (
    code,
    lifecycle,
    paths,
    pod_template,
    ports,
    quantities,
    shared_claims,
    tokens,
    volumes,
)

MODULES = (
    pod_template,
    lifecycle,
    volumes,
    shared_claims,
    code,
    paths,
    ports,
    quantities,
    tokens,
)
