"""Lets NIXL's progress thread sleep between looks: as it comes, it takes a whole core per worker.

On a GPU node there are cores enough for that. On a laptop with two of them, four idle workers leave
nothing to compute with. NIXL has a setting for it, which its Python interface fixes at 0.
"""

import importlib
import sys
from importlib.abc import MetaPathFinder

DELAY_US = 100  # measured: 1.6 % of a core instead of 100 %


class _BeforeNixl(MetaPathFinder):
    """Finds nothing itself: it acts when NIXL's Python interface is asked for, once."""

    def find_spec(self, name, path=None, target=None):
        package, _, module = name.partition(".")
        if package.startswith("nixl_cu") and module == "_api":
            sys.meta_path.remove(self)
            _slow_down(importlib.import_module(f"{package}._bindings"))


def _slow_down(bindings):
    make = bindings.nixlAgent

    def make_with_delay(name, config):
        config.pthrDelay = DELAY_US
        return make(name, config)

    bindings.nixlAgent = make_with_delay


sys.meta_path.insert(0, _BeforeNixl())
