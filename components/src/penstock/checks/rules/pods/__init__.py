"""Rules about pods."""

from penstock.checks.rules.pods import code, lifecycle, pod_template, volumes

MODULES = (
    pod_template,
    lifecycle,
    volumes,
    code,
)
