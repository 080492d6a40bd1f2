"""Environments of their own for heavy tools, as images are on a cluster: `penstock env install`.

Each is one pinned requirements file in this folder, installed from the package index alone.
"""

from penstock.environments.install import Environment, install, known, remove, require_name
from penstock.environments.paths import environments_root

__all__ = ["Environment", "environments_root", "install", "known", "remove", "require_name"]
