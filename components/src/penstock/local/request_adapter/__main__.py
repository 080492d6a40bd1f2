"""`python FOLDER --adapter-… ARGUMENTS…`: a frontend with the request adapter.

Not `python -m`: the frontend's environment may not contain penstock. So this folder becomes a
package of its own.
"""

import importlib
import sys
from pathlib import Path
from types import ModuleType

PACKAGE = "penstock_request_adapter"

if __name__ == "__main__":
    folder = str(Path(__file__).parent)
    sys.path.remove(folder)  # else `import server` of another package would find ours
    package = ModuleType(PACKAGE)
    package.__path__ = [folder]
    sys.modules[PACKAGE] = package
    importlib.import_module(f"{PACKAGE}.server").main(sys.argv[1:])
