"""Rules about request routing."""

from penstock.checks.rules.routing import (
    endpoint_picker,
    kv_events,
    planes,
    router,
    router_flags,
    worker_settings,
)

MODULES = (
    router,
    kv_events,
    planes,
    endpoint_picker,
    router_flags,
    worker_settings,
)
