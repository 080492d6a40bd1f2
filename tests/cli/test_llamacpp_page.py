"""The graphs and the table of docs/llamacpp.md."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from penstock.cli.main import main
from penstock.llamacpp.config import LlamaCppConfig
from penstock.llamacpp.options import options, with_table
from tests.support.command_line import output_of

PAGE = Path(__file__).parents[2] / "docs" / "llamacpp.md"
TEXT = PAGE.read_text("utf-8")
GRAPHS = [text.removeprefix("yaml\n") for text in TEXT.split("```")[1::2]]


@pytest.mark.parametrize("graph", GRAPHS)
def test_a_graph_on_the_page_passes_the_strict_check(
    graph: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "graph.yaml"
    file.write_text(graph)
    monkeypatch.chdir(tmp_path)
    path = tmp_path / yaml.safe_load(graph)["model"]["path"]
    path.parent.mkdir()
    path.write_bytes(b"GGUF")
    assert main(["check", "--strict", str(file)]) == 0, capsys.readouterr().out


def test_a_wrong_parser_of_a_llamacpp_graph_is_found(tmp_path: Path) -> None:
    file = tmp_path / "graph.yaml"
    file.write_text(GRAPHS[1].replace("tool_call_parser: harmony", "tool_call_parser: hermes"))
    assert "PS602 error model.tool_call_parser: --dyn-tool-call-parser is hermes" in output_of(
        ["check", str(file)], 14
    )


def test_the_limit_of_the_output_is_one_of_up() -> None:
    texts = {name: text for name, _, text in options()}
    assert "Only `up` applies it" in texts["n_predict"]


def test_the_table_has_every_option_and_a_changed_page_is_stale() -> None:
    names = [name for name, _, _ in options()]
    fields = [*LlamaCppConfig.model_fields]
    assert [name.partition(".")[0] for name in dict.fromkeys(names)][: len(fields) - 1] == fields[
        :-1
    ]
    assert all(f"| `{name}` |" in TEXT for name in names)
    assert with_table(TEXT) == TEXT
    assert with_table(TEXT.replace("| `n_parallel` | `4` |", "| `n_parallel` | `5` |")) == TEXT
    with pytest.raises(ValueError, match="0 tables"):
        with_table("# Another page\n")
