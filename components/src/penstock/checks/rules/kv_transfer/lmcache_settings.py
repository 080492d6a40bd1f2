"""Rules about keys of LMCache's configuration that require each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rules.kv_transfer.lmcache import LMCacheSettings, lmcache_workers
from penstock.checks.version_range import Versions
from penstock.serving.deployment import ServingDeployment
from penstock.significant import limit_text

SIZE, DISK, DISK_SIZE = "max_local_cpu_size", "local_disk", "max_local_disk_size"
VERIFIED = Versions(every="LMCache 0.3.9 to 0.5.6")
# Switch → the keys without which LMCache fails an assertion.
REQUIRED = {
    "enable_p2p": (
        *("enable_controller", "controller_pull_url", "controller_reply_url", "transfer_channel"),
        *("lmcache_worker_ports", "p2p_host", "p2p_init_ports", "p2p_lookup_ports"),
    ),
    "enable_pd": ("pd_role", "pd_buffer_size", "pd_buffer_device"),
    "enable_controller": ("controller_pull_url", "lmcache_worker_ports"),
}
# Former names of keys that LMCache still reads (`_CONFIG_ALIASES`).
FORMER = {
    "enable_pd": "enable_xpyd",
    "pd_role": "nixl_role",
    "pd_buffer_size": "nixl_buffer_size",
    "pd_buffer_device": "nixl_buffer_device",
    "controller_pull_url": "controller_url",
    "lmcache_worker_ports": "lmcache_worker_port",
}


def incomplete_settings(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for settings in lmcache_workers(deployment):
        for key, message, fix, level in (*_buffer(settings), *_switches(settings)):
            yield RuleResult(
                location=settings.location(deployment, key),
                message=message,
                fix=Fix(text=fix),
                level=level,
            )


def _buffer(settings: LMCacheSettings) -> Iterator[tuple[str, str, str, Level | None]]:
    """(key, message, fix, level)"""
    size = _number(settings.get(SIZE))
    is_transfer = settings.is_on("enable_pd") or settings.is_on(FORMER["enable_pd"])
    store = next((k for k in ("remote_url", DISK, "enable_p2p") if _is_set(settings, k)), None)
    if size is not None and size <= 0 and not is_transfer and store is not None:
        message = f"{SIZE} is {limit_text(size)}, but {store} needs LMCache's CPU buffer"
        yield SIZE, message, f"Set {SIZE} to some GB.", None
    disk_size = _number(settings.get(DISK_SIZE)) or 0
    if _is_set(settings, DISK) and disk_size <= 0 and settings.get("extra_config") is None:
        message = (
            f"{DISK} is set, but {DISK_SIZE} is {limit_text(disk_size)}, so the disk is not used"
        )
        yield DISK, message, f"Set {DISK_SIZE} to the GB to use.", Level.WARNING


def _switches(settings: LMCacheSettings) -> Iterator[tuple[str, str, str, Level | None]]:
    for switch, keys in REQUIRED.items():
        # Peer-to-peer transfers require the controller's keys too.
        is_covered = switch == "enable_controller" and settings.is_on("enable_p2p")
        if not settings.is_on(switch) or is_covered:
            continue
        missing = [key for key in keys if not _is_set(settings, key)]
        if missing:
            message = f"{switch} requires {', '.join(missing)}"
            yield switch, message, f"Set {', '.join(missing)}.", None


def _is_set(settings: LMCacheSettings, key: str) -> bool:
    found = (settings.get(key), settings.get(FORMER.get(key, key)))
    return any(value not in (None, "", False, "false", "False") for value in found)


def _number(value: object) -> float | None:
    try:
        return None if value is None or isinstance(value, bool) else float(str(value))
    except ValueError:
        return None
