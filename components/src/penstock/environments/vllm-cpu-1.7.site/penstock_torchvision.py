"""Make torchvision importable with a CPU build of torch.

The package index has torchvision for CUDA only. Its compiled library does not load with a CPU build
of torch, and the import fails for undeclared operators. This module declares them without an
implementation: only models that read images call them.
"""

import re
import sys
from importlib.abc import MetaPathFinder
from pathlib import Path


class _BeforeTorchvision(MetaPathFinder):
    """Finds no module itself; declares the operators at torchvision's first import."""

    def find_spec(self, name, path=None, target=None):
        if name == "torchvision.extension":
            sys.meta_path.remove(self)  # once
            _declare_operators(Path(next(iter(path))))
        return


def _declare_operators(folder):
    import torch

    try:
        torch.ops.load_library(folder / "_C.so")
    except OSError:
        pass
    else:
        return
    registered = "".join(
        (folder / name).read_text()
        for name in ("_autograd_registrations.py", "_meta_registrations.py")
    )
    library = torch.library.Library("torchvision", "DEF")
    for name in sorted(set(re.findall(r'"torchvision::(\w+)"', registered))):
        library.define(f"{name}(Tensor input) -> Tensor")
    torch.library.penstock_torchvision = library  # keeps the declarations alive


sys.meta_path.insert(0, _BeforeTorchvision())
