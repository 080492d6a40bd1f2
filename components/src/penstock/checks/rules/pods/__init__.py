"""Rules about pods."""

from penstock.checks.rules.pods import (
    code,
    config_maps,
    lifecycle,
    listeners,
    paths,
    pod_environment,
    pod_template,
    ports,
    quantities,
    scheduling,
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
    pod_environment,
    quantities,
    scheduling,
    tokens,
)
