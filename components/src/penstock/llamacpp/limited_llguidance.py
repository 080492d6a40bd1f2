"""llguidance whose verdicts come from a process of their own, with limits on memory and time.

A grammar that takes all memory to compile would otherwise end the worker, with all its requests.
`python -m penstock.llamacpp.limited_llguidance LIBRARY SECONDS BYTES` reads the names of special
tokens and then grammars from its input, each as a line of JSON, and writes a verdict for each. Its
input ends with the worker.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path

from penstock.llamacpp.llguidance import Llguidance

MOST_CPU_S = 5  # for one grammar
MOST_BYTES = 1 << 30  # more than without a grammar


class LimitedLlguidance(Llguidance):
    def __init__(
        self,
        library: Path,
        special_tokens: Iterable[str] = (),
        most_cpu_s: int = MOST_CPU_S,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        """AttributeError when the library was built without llguidance."""
        self._path, self._special_tokens = library, list(special_tokens)
        self._limits = most_cpu_s, most_bytes
        super().__init__(library, self._special_tokens)
        self._child: subprocess.Popen[str] | None = None
        self._one = threading.Lock()

    def problem(self, grammar: str) -> str:
        """Why llama.cpp cannot compile a `%llguidance` grammar, also because it exceeds the
        limits; empty if it can. For any thread."""
        with self._one:
            child = self._child = self._child or self._started()
            assert child.stdin
            assert child.stdout
            try:
                print(json.dumps(grammar), file=child.stdin, flush=True)
                verdict = child.stdout.readline()
            except BrokenPipeError:
                verdict = ""
            if verdict:
                return str(json.loads(verdict))
            self.end()
            seconds, most_bytes = self._limits
            return f"it takes more than {seconds} s or {most_bytes >> 20} MiB to compile"

    def end(self) -> None:
        """End the process, if it runs."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.communicate()

    def _started(self) -> subprocess.Popen[str]:
        module = "penstock.llamacpp.limited_llguidance"
        child = subprocess.Popen(
            [sys.executable, "-m", module, str(self._path), *map(str, self._limits)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        print(json.dumps(self._special_tokens), file=child.stdin, flush=True)
        return child


def main(library: Path, most_cpu_s: int, most_bytes: int) -> None:
    llguidance = Llguidance(library, json.loads(sys.stdin.readline()))
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + most_bytes, used + most_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in sys.stdin:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        end_s = int(usage.ru_utime + usage.ru_stime) + 1 + most_cpu_s
        resource.setrlimit(resource.RLIMIT_CPU, (end_s, resource.RLIM_INFINITY))
        print(json.dumps(llguidance.problem(json.loads(line))), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
