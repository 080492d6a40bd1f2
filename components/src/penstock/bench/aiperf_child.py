"""Starts AIPerf in its environment with the API key of OPENAI_API_KEY, which AIPerf does not read.

Imports nothing of penstock, which that environment does not have. `aiperf.py` starts it. As the key
is added here, no list of processes shows it.
"""

import os
import sys

from aiperf.cli import app

if __name__ == "__main__":  # AIPerf's own processes import this module too
    key = os.environ.get("OPENAI_API_KEY")
    if key:
        sys.argv += ["--api-key", key]
    sys.exit(app())
