"""Driver of the command `llm`: BASE_URL MODEL. Each request is one command."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from clients import common

BASE_URL, MODEL = sys.argv[1:3]
LLM = str(Path(sys.executable).parent / "llm")
# Of the parameters in the requests; `max_output_tokens` is `max_tokens` here.
OPTIONS = {"max_tokens", "max_output_tokens", "temperature", "seed", "stop", "top_p"}
STATUS = re.compile(r"Error code: (\d+) - (.*)", re.DOTALL)
USAGE = re.compile(r"Token usage: ([\d,]+) input, ([\d,]+) output")
APIS = {
    "chat": {"supports_schema": True, "supports_tools": True},
    "completions": {"completion": True},
    "responses": {"responses": True},
}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        models = [
            {"model_id": api, "model_name": MODEL, "api_base": BASE_URL, **features}
            for api, features in APIS.items()
        ]
        # JSON is YAML.
        (Path(folder) / "extra-openai-models.yaml").write_text(json.dumps(models))
        os.environ["LLM_USER_PATH"] = folder
        common.serve(run)


def run(request: common.Request) -> common.Result:
    params = dict(request["params"])
    schema = params.pop("response_format", None)
    missing = sorted(set(params) - OPTIONS)
    if missing:
        return {"absent": f"llm has no option {' or '.join(missing)}"}
    arguments = [LLM, "prompt", "--no-log", "-m", request["api"]]
    for name, value in params.items():
        option = "max_tokens" if name == "max_output_tokens" else name
        arguments += ["-o", option, str(value[0] if isinstance(value, list) else value)]
    if schema is not None:
        arguments += ["--schema", json.dumps(schema["json_schema"]["schema"])]
    if request.get("stream"):
        return _stream([*arguments, "--usage", request["prompt"]], request.get("cancel_after"))
    # A prompt of 100,000 characters is too long for an argument.
    done = subprocess.run(
        [*arguments, "--no-stream", "--json"],
        input=request["prompt"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        return {"error": _described(done.stderr)}
    return _result(json.loads(done.stdout)[0])


def _described(printed: str) -> common.Result:
    """What `llm` prints of an error: the status and the message."""
    found = STATUS.search(printed)
    return {
        "class": "Error",
        "status": int(found[1]) if found else None,
        "code": None,
        "param": None,
        "message": found[2].strip() if found else printed[-500:],
    }


def _result(entry: Any) -> common.Result:
    answer = entry["response_json"]
    used = answer["usage"]
    details = used.get("prompt_tokens_details") or used.get("input_tokens_details") or {}
    choices = answer.get("choices") or [{"finish_reason": answer.get("status")}]
    return {
        "texts": [entry["response"]],
        "finish": [choice.get("finish_reason") for choice in choices],
        "usage": common.usage(
            used.get("prompt_tokens", used.get("input_tokens")),
            used.get("completion_tokens", used.get("output_tokens")),
            details.get("cached_tokens"),
        ),
    }


def _stream(arguments: list[str], cancel_after: int | None) -> common.Result:
    """Chunks are what one read of the command's output returns."""
    with subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        descriptor, texts, begun, first = child.stdout.fileno(), [], time.monotonic(), 0.0
        while data := os.read(descriptor, 65536):
            first = first or time.monotonic()
            texts.append(data.decode(errors="replace"))
            if cancel_after is not None and len(texts) >= cancel_after:
                child.send_signal(signal.SIGINT)  # Ctrl-C
                break
        seconds = (time.monotonic() - (first or begun)) / max(1, len(texts) - 1)
        printed = child.stderr.read().decode()
    if cancel_after is None and child.returncode != 0:
        return {"error": _described(printed)}
    found = USAGE.search(printed)
    tokens = [int(text.replace(",", "")) for text in found.groups()] if found else None
    return {
        "texts": ["".join(texts)],
        "chunks": len(texts),
        "seconds_per_chunk": seconds,
        "usage": common.usage(tokens[0], tokens[1], 0) if tokens else None,
    }


if __name__ == "__main__":
    main()
