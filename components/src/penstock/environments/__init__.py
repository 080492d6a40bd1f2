"""Separate Python environments for large tools, like images on a cluster: `penstock env install`.

Each is one pinned requirements file in this folder, installed from the package index.
"""

from penstock.environments.install import (
    Environment,
    find_environment,
    install,
    list_environments,
    remove,
)
from penstock.environments.paths import environments_root, is_installed

__all__ = [
    "Environment",
    "environments_root",
    "find_environment",
    "install",
    "is_installed",
    "list_environments",
    "remove",
]
