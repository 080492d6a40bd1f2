"""Rules about pods."""

from penstock.checks.rules.pods import (
    code,
    config_maps,
    lifecycle,
    listeners,
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
    listeners,
    volumes,
    shared_claims,
    code,
    config_maps,
    paths,
    ports,
    quantities,
    tokens,
)
