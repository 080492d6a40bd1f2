"""Tools for models whose chat template renders none."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from penstock.local import adapter_launch
from penstock.local.deployment import Program
from penstock.local.tool_template import FILE, with_tools
from penstock.manifests.deployment import Role

# As SmolLM2's: any role, and a system message of its own if there is none.
CHATML = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nI am small.<|im_end|>\n' }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
USER = {"role": "user", "content": "How is the weather in Köln?"}
SYSTEM = {"role": "system", "content": "Be brief."}
TEXT = {"role": "assistant", "content": "Sunny."}
FUNCTION = {"name": "weather", "parameters": {"type": "object", "properties": {"city": {}}}}
TOOLS = [
    {"type": "function", "function": FUNCTION},
    {"type": "function", "function": {"name": "t"}},
]
RESULT = {"role": "tool", "tool_call_id": "c", "content": "sun"}


def call(arguments: Any) -> dict[str, Any]:
    function = {"name": "weather", "arguments": arguments}
    return {"id": "c", "type": "function", "function": function}


def rendered(template: str, messages: list[Any], tools: Any = None) -> str:
    """As transformers and Dynamo render it."""
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    compiled = environment.from_string(template)
    return compiled.render(messages=messages, tools=tools, add_generation_prompt=True)


def worker(*more: str, env: dict[str, str] | None = None) -> Program:
    return Program(
        name="decode",
        component="decode",
        role=Role.DECODE,
        replicas=1,
        argv=("python", "-m", "penstock.llamacpp", "--model-folder", "/model", *more),
        env=env or {},
        files={"/etc/engine.yaml": "a: 1"},
        grace_s=10,
    )


def folder(tmp_path: Path, template: Any) -> str:
    config = {"chat_template": template} if template is not None else {}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    return str(tmp_path)


@pytest.fixture
def template(tmp_path: Path) -> str:
    """SmolLM2's template with tools."""
    return with_tools(worker(), folder(tmp_path, CHATML)).files[FILE]


@pytest.mark.parametrize(
    "messages", [[USER], [SYSTEM, USER], [USER, TEXT, USER], [SYSTEM], []], ids=len
)
def test_a_request_without_tools_is_rendered_by_the_models_own_template(
    template: str, messages: list[Any]
) -> None:
    assert rendered(template, messages) == rendered(CHATML, messages)
    assert rendered(template, messages, tools=[]) == rendered(CHATML, messages)


def test_the_tools_follow_the_text_of_the_system_message(template: str) -> None:
    prompt = rendered(template, [SYSTEM, USER], TOOLS)
    begin, rest = prompt.split("\n<tools>\n")
    listed, rest = rest.split("\n</tools>\n")
    assert begin.startswith("<|im_start|>system\nBe brief.\n\n")
    assert [json.loads(line) for line in listed.splitlines()] == [t["function"] for t in TOOLS]
    assert rest.endswith(f"<|im_start|>user\n{USER['content']}<|im_end|>\n<|im_start|>assistant\n")
    assert prompt.count("<|im_start|>system") == 1
    alone = rendered(template, [USER], TOOLS)
    assert alone == prompt.replace("Be brief.\n\n", ""), "the message replaces the model's own one"


@pytest.mark.parametrize("arguments", ['{"city": "Köln"}', {"city": "Köln"}])
def test_calls_and_results_become_text_in_the_format_of_the_parser(
    template: str, arguments: Any
) -> None:
    calls = [call(arguments), call("{}")]
    empty = {"role": "assistant", "content": None, "tool_calls": calls}
    calls_as_text = (
        '<tool_call>\n{"name": "weather", "arguments": {"city": "Köln"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "weather", "arguments": {}}\n</tool_call>'
    )
    result = "<|im_start|>user\nThe function returned: sun\nAnswer my question with it.<|im_end|>\n"
    for tools in (TOOLS, None):  # Dynamo leaves the tools out with a `tool_choice` of `none`
        prompt = rendered(template, [USER, empty, RESULT], tools)
        assert f"<|im_start|>assistant\n{calls_as_text}<|im_end|>\n{result}" in prompt
    with_text = {**empty, "content": "I look it up."}
    assert f"assistant\nI look it up.\n{calls_as_text}<|im_end|>" in rendered(
        template, [USER, with_text, RESULT]
    )


def test_the_worker_gets_the_template_and_the_parser(tmp_path: Path) -> None:
    program = with_tools(worker("--dyn-tool-call-parser", "hermes"), folder(tmp_path, CHATML))
    plain = worker()
    options = ("--custom-jinja-template", FILE, "--dyn-tool-call-parser", "hermes")
    assert program.argv == (*plain.argv, *options)
    assert program.files.items() > plain.files.items()


@pytest.mark.parametrize(
    "template",
    [
        "{% if tools %}{{ tools }}{% endif %}" + CHATML,
        "{{ raise_exception('roles must alternate') }}",
        [{"name": "default", "template": CHATML}, {"name": "tool_use", "template": "{{ tools }}"}],
        None,
    ],
)
def test_a_model_with_tools_or_restricted_roles_keeps_its_template(
    tmp_path: Path, template: Any
) -> None:
    assert with_tools(worker(), folder(tmp_path, template)) == worker()


@pytest.mark.parametrize(
    "program",
    [
        worker("--custom-jinja-template", "/my.jinja"),
        worker("--dyn-tool-call-parser", "mistral"),
        worker(env={"DYN_TOOL_CALL_PARSER": "mistral"}),
        worker(env={"DYN_CUSTOM_JINJA_TEMPLATE": "/my.jinja"}),
    ],
)
def test_the_graphs_own_template_or_parser_wins(tmp_path: Path, program: Program) -> None:
    assert with_tools(program, folder(tmp_path, CHATML)) == program


FRONTEND = Program(
    name="frontend",
    component="frontend",
    role=Role.FRONTEND,
    replicas=1,
    argv=("python", "-m", "dynamo.frontend", "--router-mode", "kv"),
    env={},
    grace_s=10,
)


def renders_tools(program: Program) -> bool:
    (adapted, _), engine = adapter_launch.with_adapter([FRONTEND, program])
    assert engine == "llamacpp"
    return "--adapter-renders-tools" not in adapted.argv


def test_the_adapter_knows_whether_the_template_renders_tools(tmp_path: Path) -> None:
    """A template in a file of the graph, on this machine or of the model; else it is unknown."""
    in_folder = replace(worker(), argv=(*worker().argv[:4], folder(tmp_path, CHATML)))
    assert not renders_tools(in_folder)
    assert renders_tools(with_tools(in_folder, str(tmp_path)))
    (tmp_path / "chat_template.jinja").write_text("{{ tools }}")
    assert renders_tools(in_folder)
    for with_file in (
        worker("--custom-jinja-template", "/my.jinja"),
        worker(env={"DYN_CUSTOM_JINJA_TEMPLATE": "/my.jinja"}),
    ):
        assert renders_tools(with_file)
        assert renders_tools(replace(with_file, files={"/my.jinja": "{{ tools }}"}))
        assert not renders_tools(replace(with_file, files={"/my.jinja": CHATML}))
