"""The llamacpp engine against llama.cpp's own server, and under faults.

    python benchmarks/llamacpp.py [exact] [faults] [throughput] [--variant NAME]

Needs the environment llamacpp. Each part is written to results/llamacpp.json
when it ends; `faults` continues with the seeds that are missing there. exact: greedy tokens of 50
prompts, aggregated and disaggregated; --variant runs one of them.
faults: 100 kills, drains and changes of the replicas under 16 streams. throughput: output tokens
per second at 1 and 4 streams, in turn with llama.cpp's server.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import httpx
from tokenizers import Tokenizer

from graphs import GRAPHS
from penstock.drill.graph_process import GraphProcess
from penstock.drill.inject import choose
from penstock.drill.run import DrillOptions, drill_graph
from penstock.environments import environments_root
from penstock.environments.packaged_models import SMOLLM2, packaged_model
from penstock.local.llamacpp_engine import find_gguf
from report import RESULTS, write_result
from token_requests import Prompt, ask

SEED = 1807  # of all prompts; no other was tried
CONTEXT, SLOTS, THREADS = 2048, 4, 1
TOKENS = 32  # of each answer that is compared
CODE, CHATS, SCRIPTS = 25, 10, 15
LONGEST = 1500
START_S = 120.0
CHILD = Path(__file__).with_name("llamacpp_child.py")
POOLS = (
    "prefill:\n  replicas: 2  # edit it while the graph runs, or use `penstock scale`\n\ndecode:\n"
)
# Code points of scripts whose characters llama.cpp splits into several tokens.
RANGES = ((0x4E00, 0x9FFF), (0x3041, 0x3096), (0xAC00, 0xD7A3), (0x1F600, 0x1F64F), (0x905, 0x939))

# Variant of `exact` → aggregated workers (0: disaggregated).
VARIANTS = {"aggregated": 1, "disaggregated": 0}

STREAMS, FAULTS, SEEDS = 16, 10, 5
KINDS = {
    "aggregated": "kill:worker,term:worker,scale",
    "disaggregated": "kill:prefill,term:prefill,kill:decode,term:decode,scale",
}

ROUNDS, SPEED_TOKENS, SPEED_PROMPT = 7, 128, 64


def quickstart(folder: Path, *, aggregated: int = 0) -> Path:
    """A copy of quickstart.yaml; ``aggregated``: with so many aggregated workers instead."""
    text = (GRAPHS / "quickstart.yaml").read_text("utf-8")
    if aggregated:
        pools = text.index("prefill:\n")
        text = f"{text[:pools]}worker:\n  replicas: {aggregated}\n"
    text = text.replace("    n_parallel:", f"    n_threads: {THREADS}\n    n_parallel:")
    path = folder / "quickstart.yaml"
    path.write_text(text, "utf-8")
    return path


@contextmanager
def graph(aggregated: int = 0) -> Iterator[str]:
    """The URL of a running graph."""
    with tempfile.TemporaryDirectory(prefix="penstock-llamacpp-") as name:
        folder = Path(name)
        path = quickstart(folder, aggregated=aggregated)
        with GraphProcess(path, folder, ["--port", "0"]) as process:
            yield process.wait_ready(START_S)


@contextmanager
def llama_cpp(
    file: Path | None = None, context: int = CONTEXT, slots: int = SLOTS, threads: int = THREADS
) -> Iterator[str]:
    """The URL of llama.cpp's own server. ``file``: None for SmolLM2."""
    site = next((environments_root() / "llamacpp").glob("lib/python*/site-packages"))
    arguments = (file or find_gguf(SMOLLM2).file, context, slots, threads)
    with subprocess.Popen(
        [sys.executable, str(CHILD), *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(site)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.stdin.close()


@cache
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(find_gguf(SMOLLM2).folder / "tokenizer.json"))


def encode(text: str) -> tuple[int, ...]:
    return tuple(tokenizer().encode(text, add_special_tokens=False).ids)


@cache
def prompts() -> tuple[Prompt, ...]:
    """50 prompts of 1 to 1,500 tokens, drawn from Python's documentation of its language.

    25 excerpts, 10 chats, and 15 excerpts with CJK, Hangul, Devanagari and emoji among the words.
    """
    draw = random.Random(SEED)
    text = "\n\n".join(topics[name] for name in sorted(topics))
    ids = encode(text)

    firsts: set[int] = set()

    def excerpt(longest: int) -> tuple[int, ...]:
        count = round(longest ** draw.random())
        begin = draw.randrange(len(ids) - count)
        return ids[begin : begin + count]

    def distinct(make: Callable[[], tuple[int, ...]]) -> Prompt:
        """Begins with a token with which no other begins: no cache has a part of it."""
        while (made := make())[0] in firsts:
            pass
        firsts.add(made[0])
        return Prompt(made)

    def text_of(longest: int) -> str:
        return tokenizer().decode(excerpt(longest))

    code = [distinct(lambda: excerpt(LONGEST)) for _ in range(CODE)]
    chats = [distinct(lambda: encode(text_of(4) + _chat(text_of(300)))) for _ in range(CHATS)]
    mixed = [distinct(lambda: encode(_mixed(draw, text_of(200)))) for _ in range(SCRIPTS)]
    return (*code, *chats, *mixed)


def _chat(text: str) -> str:
    return f"<|im_start|>user\nExplain: {text}<|im_end|>\n<|im_start|>assistant\n"


def _mixed(draw: random.Random, text: str) -> str:
    """``text`` with words in other scripts; the last one is such a word."""
    words = text.split()
    for at in sorted(draw.choices(range(len(words) + 1), k=6), reverse=True):
        words.insert(at, _word(draw))
    return " ".join([*words, _word(draw)])


def _word(draw: random.Random) -> str:
    first, last = draw.choice(RANGES)
    return "".join(chr(draw.randint(first, last)) for _ in range(draw.randint(1, 5)))


def completion(url: str, ids: Sequence[int], tokens: int, **more: Any) -> dict[str, Any]:
    """Greedy, from llama.cpp's own API."""
    body = {"prompt": list(ids), "n_predict": tokens, "temperature": 0, "ignore_eos": True, **more}
    plain = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "repeat_penalty": 1.0}
    response = httpx.post(f"{url}/completion", json=body | plain, timeout=180, trust_env=False)
    found: dict[str, Any] = response.raise_for_status().json()
    return found


def exact(done: dict[str, Any], variants: Sequence[str]) -> dict[str, Any]:
    """One request at a time, each prompt twice: the second finds the first in the prefix cache.

    The reference is asked in the same way: in llama.cpp, sums are rounded in another way when a
    part of the prompt comes from the cache, because the shape of the batch decides on the kernel.
    Other variants keep the figures in ``done``.
    """
    with llama_cpp() as url:
        expected = [_alone(url, prompt.ids) for prompt in prompts()]
    figures: dict[str, Any] = {
        **done,
        "prompts": len(prompts()),
        "prompts_from": f"pydoc_data.topics, seed {SEED}",
        "prompt_tokens": sum(len(p.ids) for p in prompts()),
        "tokens_per_answer": TOKENS,
        "different_answers_of_llama_cpp": len({tuple(first) for first, _ in expected}),
        "answers_of_llama_cpp_that_its_cache_changes": sum(a != b for a, b in expected),
    }
    for name in variants:
        with graph(VARIANTS[name]) as url:
            differ = [line for at in range(len(expected)) for line in _compare(url, at, expected)]
        figures[name] = {
            "requests": 2 * len(expected),
            "requests_token_exact": 2 * len(expected) - len(differ),
            "differences": differ,
        }
    return figures


def _alone(url: str, ids: Sequence[int]) -> tuple[list[int], list[int]]:
    """The tokens without, and with the prefix cache."""
    one, two = (
        completion(url, ids, TOKENS, cache_prompt=cached, return_tokens=True, id_slot=0)["tokens"]
        for cached in (False, True)
    )
    return one, two


def _compare(url: str, at: int, expected: Sequence[tuple[list[int], list[int]]]) -> list[str]:
    """One line for each wrong answer to a prompt: first streamed, then not."""
    found = []
    for stream, tokens in zip((True, False), expected[at], strict=True):
        got = ask(url, SMOLLM2, prompts()[at], stream, TOKENS)
        if got.error or got.tokens != tokens:
            order = "first" if stream else "second"
            equal = sum(1 for _ in _equal(got.tokens, tokens))
            found.append(
                f"prompt {at} ({len(prompts()[at].ids)} tokens), {order}: "
                f"{got.error or f'differs after {equal} tokens'}"
            )
        time.sleep(0.1)  # KV events reach the router
    return found


def _equal(one: Sequence[int], other: Sequence[int]) -> Iterator[int]:
    for a, b in zip(one, other, strict=False):
        if a != b:
            return
        yield a


def faults(report: Callable[[dict[str, Any]], None], done: dict[str, Any]) -> dict[str, Any]:
    """The missing seeds; ``report`` is called after each."""
    runs: list[dict[str, Any]] = done.get("runs", [])
    for seed in range(1, SEEDS + 1):
        for variant in KINDS:
            if not any((r["variant"], r["seed"]) == (variant, seed) for r in runs):
                runs.append(_drill(variant, seed))
                report(_sum(runs))
    return _sum(runs)


def _sum(runs: list[dict[str, Any]]) -> dict[str, Any]:
    names = ("faults", "requests", "lost", "retried", "migrated")
    return {
        "streams": STREAMS,
        "clients": "OpenAI's: two retries of a request without a token",
        **{name: sum(run.get(name, 0) for run in runs) for name in names[:4]},
        "runs": runs,
    }


def _drill(variant: str, seed: int) -> dict[str, Any]:
    choices = choose(KINDS[variant])
    # A slot and a core compute many streams slowly: a wait for a slot is no stall.
    options = DrillOptions(seed=seed, count=FAULTS, streams=STREAMS, tokens=24, stall_s=60.0)
    with tempfile.TemporaryDirectory(prefix="penstock-drill-") as name:
        folder = Path(name)
        (folder / "from").mkdir()
        made = quickstart(folder / "from", aggregated=2 if variant == "aggregated" else 0)
        sets = () if variant == "aggregated" else ("prefill.replicas=2", "decode.replicas=2")
        result = drill_graph(
            made,
            choices,
            (),
            sets,
            options,
            folder,
            lambda t: print(f"{variant} {seed}: {t}", flush=True),
        )
    evaluation = result.evaluation
    return {
        "variant": variant,
        "seed": seed,
        "faults": len(result.faults),
        "requests": evaluation.requests,
        "lost": len(result.history) - sum(not r.error for r in result.history),
        "retried": sum(bool(r.rejections) for r in result.history),
        "errors": sorted({r.error[:160] for r in result.history if r.error}),
        "not_recovered": [f"{f.kind} {f.target}" for f in evaluation.not_recovered],
        "leftovers": list(evaluation.leftovers),
        "seconds": round(result.seconds),
    }


def throughput() -> dict[str, Any]:
    """Rounds in turn; the ratio of each round, and their median and range."""
    draw = random.Random(SEED)
    figures: dict[str, Any] = {
        "output_tokens": SPEED_TOKENS,
        "input_tokens": SPEED_PROMPT,
        "threads": THREADS,
    }
    with llama_cpp() as own, graph(1) as ours:
        for streams in (1, 4):
            rounds = []
            for _ in range(ROUNDS):
                sent = [
                    [draw.randrange(100, 40_000) for _ in range(SPEED_PROMPT)]
                    for _ in range(streams)
                ]
                rounds.append((_speed(_ours(ours), sent), _speed(_own(own), sent)))
            ratios = [a / b for a, b in rounds]
            figures[f"streams_{streams}"] = {
                "graph_tokens_per_s": round(statistics.median(a for a, _ in rounds), 1),
                "llama_cpp_tokens_per_s": round(statistics.median(b for _, b in rounds), 1),
                "ratio_median": round(statistics.median(ratios), 3),
                "ratio_min": round(min(ratios), 3),
                "ratio_max": round(max(ratios), 3),
                "rounds": ROUNDS,
            }
    return figures


Stream = Callable[[list[int]], None]


def _speed(stream: Stream, sent: list[list[int]]) -> float:
    """Output tokens per second of all streams together."""
    begun = time.monotonic()
    with ThreadPoolExecutor(len(sent)) as pool:
        list(pool.map(stream, sent))
    return len(sent) * SPEED_TOKENS / (time.monotonic() - begun)


def _ours(url: str) -> Stream:
    body = {"model": SMOLLM2, "max_tokens": SPEED_TOKENS, "temperature": 0, "ignore_eos": True}
    return _streamed(f"{url}/completions", body)


def _own(url: str) -> Stream:
    body = {"n_predict": SPEED_TOKENS, "temperature": 0, "ignore_eos": True}
    return _streamed(f"{url}/completion", body)


def _streamed(url: str, body: dict[str, Any]) -> Stream:
    client = httpx.Client(timeout=180, trust_env=False, verify=False)

    def run(prompt: list[int]) -> None:
        content = {**body, "prompt": prompt, "stream": True}
        with client.stream("POST", url, json=content) as response:
            response.raise_for_status()
            events = sum(line.startswith("data: {") for line in response.iter_lines())
        if events < SPEED_TOKENS // 2:
            raise SystemExit(f"{url} sent {events} events for {SPEED_TOKENS} tokens")

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="exact|faults|throughput")
    parser.add_argument("--variant", choices=VARIANTS, help="of exact (default: all)")
    options = parser.parse_args()
    chosen = options.parts or ["exact", "faults", "throughput"]
    variants = [options.variant] if options.variant else [*VARIANTS]
    if packaged_model(SMOLLM2, "gguf") is None:
        raise SystemExit("The model is not installed. Run `penstock tools env install llamacpp`.")
    path = RESULTS / "llamacpp.json"
    old = json.loads(path.read_text("utf-8")) if path.exists() else {}
    done = {part: old[part] for part in ("exact", "faults", "throughput") if part in old}

    def save(part: str, figures: dict[str, Any]) -> None:
        done[part] = figures
        about = {"graph": "dynamo_graphs/quickstart.yaml", "engine": _version()}
        write_result("llamacpp", "python benchmarks/llamacpp.py", {**about, **done}, show=False)

    for part in chosen:
        if part == "faults":
            save(part, faults(lambda f: save("faults", f), done.get(part, {})))
        elif part == "exact":
            save(part, exact(done.get(part, {}), variants))
        else:
            save(part, throughput())
        print(part, json.dumps(done[part])[:2000], flush=True)


def _version() -> str:
    site = next((environments_root() / "llamacpp").glob("lib/python*/site-packages"))
    (found,) = site.glob("xllamacpp-*.dist-info")
    return found.name.removesuffix(".dist-info").replace("-", " ")


if __name__ == "__main__":
    main()
