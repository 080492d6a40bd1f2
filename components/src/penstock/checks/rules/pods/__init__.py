"""Rules about pods."""

from penstock.checks.rules.pods import (
    code,
    lifecycle,
    paths,
    pod_template,
    ports,
    quantities,
    tokens,
    volumes,
)

MODULES = (
    pod_template,
    lifecycle,
    volumes,
    code,
    paths,
    ports,
    quantities,
    tokens,
)
