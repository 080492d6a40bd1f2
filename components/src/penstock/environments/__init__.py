"""Separate environments for large tools, like images on a cluster: `penstock tools env install`.

Each is one pinned requirements file in this folder, installed from the package index.
"""

from penstock.environments.paths import environments_root, is_installed

__all__ = ["environments_root", "is_installed"]
