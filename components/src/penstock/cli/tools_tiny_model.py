"""`penstock tools tiny-model PATH`: write a small model with random weights, for the CPU graphs."""

from __future__ import annotations

import argparse
from pathlib import Path

from penstock.cli.replaying import add_seed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "path", metavar="PATH", type=Path, help="folder or GGUF file to write; must not exist"
    )
    parser.add_argument(
        "--format",
        choices=["safetensors", "gguf"],
        default="safetensors",
        help="folder with safetensors for vLLM, or one GGUF file for llama.cpp "
        "(default: safetensors)",
    )
    parser.add_argument(
        "--arch",
        choices=["gpt-oss", "llama"],
        default="gpt-oss",
        help="architecture; gpt-oss has sliding and full attention, sinks, experts "
        "(default: gpt-oss)",
    )
    add_seed(parser, "the random weights")


def run(args: argparse.Namespace) -> int:
    from penstock.tiny_model import write, write_gguf

    writers = {"safetensors": write, "gguf": write_gguf}
    is_new = writers[args.format](args.path, args.arch, args.seed)
    print(f"{args.path}: {args.arch}, seed {args.seed}{'' if is_new else ' (already exists)'}")
    return 0
