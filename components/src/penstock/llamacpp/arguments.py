"""The command line of the worker. Dynamo's own flags and variables are those of its other workers.

`penstock check` and `up` parse each worker's command line with it before anything starts.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dynamo.common.configuration.groups.runtime_args import (
    DynamoRuntimeArgGroup,
    DynamoRuntimeConfig,
)
from dynamo.common.constants import DisaggregationMode
from dynamo.common.utils.runtime import parse_endpoint

from penstock.llamacpp.config import LlamaCppConfig, read_config

MODES = ("agg", "prefill", "decode")


class RuntimeConfig(DynamoRuntimeConfig):
    """Dynamo's part of the command line."""

    component: str
    disaggregation_mode: DisaggregationMode


@dataclass(frozen=True, kw_only=True)
class Arguments:
    model: Path
    model_folder: Path | None
    """Its config and tokenizer files; None: written to a temporary folder."""
    served_model_name: str | None
    config: LlamaCppConfig
    runtime: RuntimeConfig

    @property
    def mode(self) -> DisaggregationMode:
        return self.runtime.disaggregation_mode


def parser() -> argparse.ArgumentParser:
    command_line = argparse.ArgumentParser(prog="penstock.llamacpp", allow_abbrev=False)
    DynamoRuntimeArgGroup().add_arguments(command_line)
    group = command_line.add_argument_group("llama.cpp")
    group.add_argument("--model", type=Path, required=True, help="the GGUF file")
    group.add_argument(
        "--model-folder",
        type=Path,
        help="its config and tokenizer files (default: written to a temporary folder)",
    )
    group.add_argument("--served-model-name", help="name in requests (default: the file's name)")
    group.add_argument("--disaggregation-mode", choices=MODES, default="agg", help="role")
    group.add_argument("--config", type=Path, help="YAML file with llama.cpp's options")
    return command_line


def parse(argv: Sequence[str] | None = None) -> Arguments:
    """SystemExit for a wrong command line or configuration, as argparse does."""
    command_line = parser()
    options = command_line.parse_args(argv)
    try:
        config = read_config(options.config)
    except (OSError, ValueError) as error:
        command_line.error(f"configuration: {error}")
    runtime = RuntimeConfig.from_cli_args(options)
    runtime.validate()
    runtime.disaggregation_mode = DisaggregationMode(options.disaggregation_mode)
    component = "prefill" if options.disaggregation_mode == "prefill" else "backend"
    address = runtime.endpoint or f"dyn://{runtime.namespace}.{component}.generate"
    runtime.namespace, runtime.component, runtime.endpoint = parse_endpoint(address)
    return Arguments(
        model=options.model,
        model_folder=options.model_folder,
        served_model_name=options.served_model_name,
        config=config,
        runtime=runtime,
    )
