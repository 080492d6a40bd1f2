"""llguidance inside llama.cpp's library: it compiles JSON schemas, and the output follows them.

Called through its C interface, so that a verdict is of the same code, version and limits with which
llama.cpp compiles the schema later. `python -m penstock.llamacpp.llguidance` is the process of
`LimitedLlguidance`.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import resource
import subprocess
import sys
import threading
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

LLGUIDANCE = "%llguidance"  # llama.cpp takes grammars with this beginning to llguidance
START = f"{LLGUIDANCE} {{}}\nstart: "  # how the grammars of this package begin
# Limits of the process that compiles grammars.
MOST_CPU_S = 5  # for one grammar
MOST_BYTES = 1 << 30  # more than without a grammar
POINTER = ctypes.c_void_p
ERROR_BYTES = 1024
CONSTRAINT_BYTES = 1024  # of LlgConstraintInit, which has 88; only llguidance reads and writes it
SPECIAL = b"\xff"  # llguidance's mark of a special token
# A verdict does not depend on the vocabulary, except for the names of special tokens. With one
# token per byte it needs 2 ms instead of 1.1 s and 1 MB instead of 40 MB (49,152 tokens).
BYTES = tuple(bytes([value]) for value in range(256))
# `at 2(8): failed to compile JSON schema: `; the lines of the grammar or the parser's state.
POSITION = re.compile(r"\A(at \d+\(\d+\): )?(failed to compile JSON schema: )?")
LISTING = re.compile(r"\n *(\d+ \||<state>).*\Z", re.DOTALL)
PANIC = re.compile(r"\Apanic: (.*?)(\n.*)?\Z", re.DOTALL)


class _TokenizerInit(ctypes.Structure):
    """`LlgTokenizerInit` of llguidance.h."""

    _fields_ = (
        ("vocab_size", ctypes.c_uint32),
        ("tok_eos", ctypes.c_uint32),
        ("token_lens", POINTER),
        ("token_bytes", POINTER),
        ("tokenizer_json", ctypes.c_char_p),
        ("tokenize_assumes_string", ctypes.c_bool),
        ("tokenize_fn", POINTER),
        ("use_approximate_greedy_tokenize_fn", ctypes.c_bool),
        ("tokenize_user_data", POINTER),
        ("slices", POINTER),
    )


class Llguidance:
    """The C interface, with a tokenizer of bytes and special tokens. For any thread."""

    def __init__(self, library: Path, special_tokens: Iterable[str] = ()) -> None:
        """AttributeError when the library was built without llguidance."""
        self._library = _declared(ctypes.CDLL(str(library)))
        self._tokenizer = self._new_tokenizer(special_tokens)
        # Large schemas take hundreds of MB while they are compiled: one at a time.
        self._lock = threading.Lock()

    def _new_tokenizer(self, special_tokens: Iterable[str]) -> int:
        names = [SPECIAL + name.encode() for name in special_tokens] or [SPECIAL + b"<|end|>"]
        tokens = (*BYTES, *names)
        lengths = (ctypes.c_uint32 * len(tokens))(*map(len, tokens))
        content = b"".join(tokens)
        data = ctypes.create_string_buffer(content, len(content))
        init = _TokenizerInit(
            vocab_size=len(tokens),
            tok_eos=len(BYTES),
            token_lens=ctypes.addressof(lengths),
            token_bytes=ctypes.addressof(data),
            use_approximate_greedy_tokenize_fn=True,
        )
        error = ctypes.create_string_buffer(ERROR_BYTES)
        tokenizer = self._library.llg_new_tokenizer(ctypes.byref(init), error, ERROR_BYTES)
        if not tokenizer:
            raise RuntimeError(f"llguidance: {error.value.decode(errors='replace')}")
        return int(tokenizer)

    def problem(self, grammar: str) -> str:
        """Why llama.cpp cannot compile a `%llguidance` grammar; empty if it can."""
        with self.matcher(grammar) as matcher:
            return matcher.problem

    def matcher(self, grammar: str) -> Matcher:
        with self._lock:
            return Matcher(self._library, self._tokenizer, grammar)


class Matcher(AbstractContextManager["Matcher"]):
    """Follows an output. Used from one thread; frees its memory at the end of `with`."""

    def __init__(self, library: Any, tokenizer: int, grammar: str) -> None:
        self._library = library
        init = ctypes.create_string_buffer(CONSTRAINT_BYTES)
        library.llg_constraint_init_set_defaults(init, tokenizer)
        self._matcher: int = library.llg_new_matcher(init, b"lark", grammar.encode())
        self._is_valid = not self.problem

    @property
    def problem(self) -> str:
        error = self._library.llg_matcher_get_error(self._matcher)
        return readable(error.decode(errors="replace")) if error else ""

    def accepts(self, text: bytes) -> bool:
        """Whether the output may continue with ``text``. After a False it accepts nothing."""
        consume = self._library.llg_matcher_consume_token
        self._is_valid = self._is_valid and all(consume(self._matcher, byte) == 0 for byte in text)
        return self._is_valid

    @property
    def may_end(self) -> bool:
        return self._is_valid and bool(self._library.llg_matcher_is_accepting(self._matcher))

    def __exit__(self, *_: object) -> None:
        matcher, self._matcher = self._matcher, 0
        if matcher:
            self._library.llg_free_matcher(matcher)


def readable(error: str) -> str:
    """llguidance's error without its position in the grammar that wraps the schema."""
    if panic := PANIC.match(error):
        return f"it is too large for llguidance ({panic[1]})"
    text = LISTING.sub("", POSITION.sub("", error)).strip()
    return " ".join(text.split())


def _declared(library: Any) -> Any:
    """With the types of the functions that this module calls."""
    text, size, state = ctypes.c_char_p, ctypes.c_size_t, POINTER
    functions: dict[str, tuple[Any, ...]] = {
        "llg_new_tokenizer": (POINTER, POINTER, POINTER, size),
        "llg_constraint_init_set_defaults": (None, POINTER, POINTER),
        "llg_new_matcher": (state, POINTER, text, text),
        "llg_matcher_get_error": (text, state),
        "llg_matcher_consume_token": (ctypes.c_int32, state, ctypes.c_uint32),
        "llg_matcher_is_accepting": (ctypes.c_bool, state),
        "llg_free_matcher": (None, state),
    }
    for name, (result, *arguments) in functions.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class LimitedLlguidance(Llguidance):
    """llguidance whose verdicts come from a process of their own, which ends with the worker.

    A grammar that takes all memory to compile would otherwise end the worker, with all its
    requests.
    """

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
        module = "penstock.llamacpp.llguidance"
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
    """Read the names of special tokens and then grammars, each as a line of JSON; write a verdict
    for each. The input ends with the worker."""
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
