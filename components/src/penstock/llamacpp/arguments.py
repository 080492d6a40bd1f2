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
    made = argparse.ArgumentParser(prog="penstock.llamacpp", allow_abbrev=False)
    DynamoRuntimeArgGroup().add_arguments(made)
    own = made.add_argument_group("llama.cpp")
    own.add_argument("--model", type=Path, required=True, help="the GGUF file")
    own.add_argument(
        "--model-folder",
        type=Path,
        help="its config and tokenizer files (default: written to a temporary folder)",
    )
    own.add_argument("--served-model-name", help="name in requests (default: the file's name)")
    own.add_argument("--disaggregation-mode", choices=MODES, default="agg", help="role")
    own.add_argument("--config", type=Path, help="YAML file with llama.cpp's options")
    return made


def parse(argv: Sequence[str] | None = None) -> Arguments:
    """SystemExit for a wrong command line or configuration, as argparse does."""
    made = parser()
    given = made.parse_args(argv)
    try:
        config = read_config(given.config)
    except (OSError, ValueError) as error:
        made.error(f"configuration: {error}")
    runtime = RuntimeConfig.from_cli_args(given)
    runtime.validate()
    runtime.disaggregation_mode = DisaggregationMode(given.disaggregation_mode)
    component = "prefill" if given.disaggregation_mode == "prefill" else "backend"
    address = runtime.endpoint or f"dyn://{runtime.namespace}.{component}.generate"
    runtime.namespace, runtime.component, runtime.endpoint = parse_endpoint(address)
    return Arguments(
        model=given.model,
        model_folder=given.model_folder,
        served_model_name=given.served_model_name,
        config=config,
        runtime=runtime,
    )
