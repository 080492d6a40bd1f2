"""`penstock check` as a command: what it prints, how it ends, where a finding points."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.checks import run
from penstock.checks.finding import RuleResult
from penstock.checks.registry import RULES
from penstock.cli import main as cli
from penstock.graph.load import parse_graph
from penstock.manifests.source import render_graph
from penstock.serving.deployment import ServingDeployment
from tests.checks.cases_known_issues import BY_LOAD, planned
from tests.checks.cases_kv_connectors import EFA, LIBFABRIC, pools
from tests.checks.own_manifests import component, deployment, transfer
from tests.checks.support import (
    REMOVE,
    SGLANG_DISAGG,
    TRTLLM_AGG,
    TRTLLM_DISAGG,
    VLLM_DISAGG,
    check,
    graph,
    manifest,
    trtllm_agg,
    trtllm_agg_dgd,
    trtllm_disagg,
    trtllm_disagg_dgd,
    vllm_agg,
)
from tests.support.command_line import penstock

ROOT = Path(__file__).parents[2]
UCX = transfer("NixlConnector")
POLICY = "decode/config/scheduler_config/capacity_scheduler_policy"
GRAPHS = sorted((ROOT / "dynamo_graphs").glob("*.yaml"))


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    path = tmp_path / "wrong.yaml"
    path.write_text(trtllm_disagg({POLICY: "MAX_UTILISATION"}))
    return path


@pytest.mark.slow
def test_every_graph_of_the_repository_passes_strict() -> None:
    done = penstock("check", "--strict", *map(str, GRAPHS))
    assert done.returncode == 0, done.stdout
    assert f"{len(GRAPHS)} files: 0 errors, 0 warnings" in done.stdout


def test_a_finding_has_place_reason_and_yaml_to_paste(wrong: Path) -> None:
    done = penstock("check", "--full", str(wrong))
    assert done.returncode == 14
    line = next(
        n for n, t in enumerate(wrong.read_text().splitlines(), 1) if "MAX_UTILISATION" in t
    )
    place = "decode.config.scheduler_config.capacity_scheduler_policy"
    assert f"{wrong}:{line}:" in done.stdout
    assert f" PS102 error {place}: " in done.stdout
    fix = done.stdout.split("PS102")[1].split(str(wrong))[0]
    pasted = "\n".join(line for line in fix.splitlines() if line.startswith("      "))
    policy = {"capacity_scheduler_policy": "MAX_UTILIZATION"}
    assert yaml.safe_load(pasted) == {"decode": {"config": {"scheduler_config": policy}}}


def test_there_are_as_many_rules_as_the_readme_says() -> None:
    assert "`check` has more than 400 rules" in (ROOT / "README.md").read_text()
    assert len(RULES) > 400


def test_json_has_everything(wrong: Path) -> None:
    done = penstock("check", "--json", str(wrong), str(GRAPHS[0]))
    document = json.loads(done.stdout)
    assert document["files"] == [str(wrong), str(GRAPHS[0])]
    assert document["errors"] == 1
    (error,) = [f for f in document["findings"] if f["level"] == "error"]
    assert (error["rule"], error["file"]) == ("PS102", str(wrong))
    (place,) = error["places"]
    assert place == {
        "component": "decode",
        "line": error["line"],
        "column": error["column"],
        "place": "decode.config.scheduler_config.capacity_scheduler_policy",
        "override": None,
    }
    assert yaml.safe_load(error["yaml"])


def test_sarif_is_of_version_2_1(wrong: Path) -> None:
    log = json.loads(penstock("check", "--sarif", str(wrong)).stdout)
    (run,) = log["runs"]
    assert log["version"] == "2.1.0"
    assert {r["ruleId"] for r in run["results"]} == {
        r["id"] for r in run["tool"]["driver"]["rules"]
    }
    (error,) = [result for result in run["results"] if result["ruleId"] == "PS102"]
    where = error["locations"][0]["physicalLocation"]
    assert where["artifactLocation"]["uri"] == str(wrong)
    assert where["region"]["startLine"] > 0
    assert where["region"]["startColumn"] == 7
    assert run["columnKind"] == "unicodeCodePoints"


def test_findings_come_in_the_order_of_the_file() -> None:
    changes = {"decode/config/max_seq_len": 1000, "kv_transfer/timeout_ms": 1000}
    lines = [f.line for f in check(trtllm_disagg(changes)) if f.line is not None]
    assert lines == sorted(lines)


def test_explain_prints_the_rule() -> None:
    done = penstock("check", "--explain", "PS409")
    assert done.returncode == 0
    assert all(word in done.stdout for word in ("Cause:", "Effect:", "AISimulate"))
    assert "Except:" not in done.stdout
    assert "Except:  Nothing is reported " in penstock("check", "--explain", "PS511").stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "pass a graph"),
        (("--explain", "PS999"), "there is no rule 'PS999'"),
        (("--gpu", "h1000", "x.yaml"), "--gpu: h1000 is unknown. Fix: Did you mean `h100`?"),
        (("--model", "/nowhere", "x.yaml"), "no config.json"),
        (("--json", "--sarif", "x.yaml"), "not allowed with"),
        (("--format", "jsno", "x.yaml"), "Did you mean `json`?"),
        (("--format", "json", "--full", "x.yaml"), "not allowed with"),
        (("--max-level", "warn", "x.yaml"), "Did you mean `warning`?"),
        (("--max-level", "error", "--strict", "x.yaml"), "not allowed with"),
        (("--select", "PS4,PT501", "x.yaml"), "--select: 'PT501' is not the beginning"),
        (("--select", "PS60l", "x.yaml"), "Did you mean PS60"),
        (("--ignore", "", "x.yaml"), "--ignore: '' is not the beginning of a rule id"),
        (("--ignore", "PS002", "x.yaml"), "cannot be ignored"),
        (("--write-baseline", "x.yaml"), "needs --baseline FILE"),
    ],
)
def test_an_invalid_command_line_is_an_error(arguments: tuple[str, ...], words: str) -> None:
    done = penstock("check", *arguments)
    assert done.returncode == 2
    assert words in done.stderr


def test_a_broken_model_config_is_an_error_and_an_unsupported_type_a_note(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    for text_of_config, code, message in (
        ("{", 2, "cannot be read"),
        (
            '{"model_type": "llama", "num_hidden_layers": -1}',
            2,
            "num_hidden_layers must be an integer above 0, got -1",
        ),
        ('{"model_type": "mamba"}', 0, "model_type 'mamba' is not supported; supported: llama"),
    ):
        config.write_text(text_of_config)
        graph_file = ROOT / "dynamo_graphs" / "gpt-oss-120b-b200-disagg.yaml"
        done = penstock("check", "--model", str(tmp_path), str(graph_file))
        assert done.returncode == code
        assert message in done.stdout + done.stderr


def test_all_files_are_checked_whatever_one_of_them_is(wrong: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    done = penstock("check", str(tmp_path / "none.yaml"), str(empty), str(wrong))
    assert done.returncode == 14
    assert f"{tmp_path / 'none.yaml'} PS001 error no such file" in done.stdout
    assert f"{empty} PS001 error the folder contains no graph and no manifest" in done.stdout
    assert "PS102" in done.stdout


def test_set_changes_what_is_checked_and_is_named() -> None:
    path = str(ROOT / "dynamo_graphs" / "gpt-oss-120b-b200-disagg.yaml")
    key = "decode.config.stream_interval"
    done = penstock("check", "--full", path, "--set", f"{key}=20")
    assert f"{path} --set {key}=20 PS601 warning {key}" in done.stdout
    fix = done.stdout.split("PS601")[1].split("PS")[0]
    pasted = "\n".join(line for line in fix.splitlines() if line.startswith("      "))
    assert yaml.safe_load(pasted) == {"decode": {"config": {"stream_interval": 1}}}


def test_a_suppressed_finding_is_shown_and_does_not_count() -> None:
    suppressed = {"decode/config/max_seq_len": 1000, "checks": {"suppress": {"PS123": "we test"}}}
    findings = {f.rule: f for f in check(trtllm_disagg(suppressed))}
    assert findings["PS123"].suppressed == "we test"


@pytest.mark.parametrize(
    ("rule", "words"), [("PS123", "PS123 has no finding here"), ("PS998", "there is no rule PS998")]
)
def test_an_unused_suppression_is_a_warning(rule: str, words: str) -> None:
    findings = check(trtllm_disagg({"checks": {"suppress": {rule: "once"}}}))
    (unused,) = [f for f in findings if f.rule == "PS005"]
    assert words in unused.message
    assert unused.place == f"checks.suppress.{rule}"


def test_a_finding_in_a_configmap_has_the_line_inside_it() -> None:
    text = trtllm_disagg_dgd({"decode/max_seq_len": 1000})
    (finding,) = [f for f in check(text) if f.rule == "PS123"]
    assert finding.line is not None
    assert "ConfigMap/case-decode" in finding.place
    assert "max_seq_len" in finding.yaml


def test_a_finding_in_a_block_of_a_configmap_has_line_and_column() -> None:
    changed = trtllm_disagg({"decode/config/max_seq_len": 1000})
    text = render_graph(parse_graph(changed, "case.yaml")).text
    (finding,) = [f for f in check(text) if f.rule == "PS123"]
    assert finding.line is not None
    assert finding.column is not None
    assert text.splitlines()[finding.line - 1][finding.column - 1 :] == "max_seq_len: 1000"


def test_a_finding_about_a_variable_has_the_line_of_its_entry() -> None:
    path = "dgd/spec/components/decode/podTemplate/spec/containers/main/env/UCX_TLS/value"
    text = trtllm_disagg_dgd({path: "rc"})
    (finding,) = [f for f in check(text) if f.rule == "PS434"]
    assert finding.line is not None
    assert "UCX_TLS" in "".join(text.splitlines()[finding.line - 1 : finding.line + 1])


def test_a_value_of_the_wrong_type_is_a_finding_with_its_place() -> None:
    text = trtllm_agg_dgd({"dgd/spec/backendFramework": ["trtllm"]})
    (finding,) = [f for f in check(text) if f.rule in ("PS006", "PS757")]
    assert (finding.rule, finding.level) == ("PS006", "error")
    assert finding.message == "spec.backendFramework must be a string, got ['trtllm']"
    assert finding.line is not None
    assert text.splitlines()[finding.line - 1].strip() == "backendFramework:"


@pytest.mark.parametrize("error", [AttributeError, KeyError, TypeError, ValueError, RecursionError])
def test_a_rule_that_raises_is_a_fault_of_penstock(
    error: type[Exception],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def broken(_: ServingDeployment) -> Iterable[RuleResult]:
        raise error("llamacpp")

    (first, *rest) = RULES
    monkeypatch.setattr(run, "all_rules", lambda: (replace(first, check=broken), *rest))
    path = tmp_path / "sound.yaml"
    path.write_text(trtllm_agg())
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert cli.main(["check", str(path)]) == 70
    printed = capsys.readouterr()
    assert "PS006" not in printed.out
    assert "unexpected error, a bug in penstock: " in printed.err
    assert f"{first.id} ({first.title}) cannot be evaluated for {path}: " in printed.err
    (log,) = tmp_path.glob("penstock-error-*.log")
    assert str(log) in printed.err
    assert error.__name__ in log.read_text()


def test_the_memory_of_llamacpp_on_a_gpu_is_unknown_and_not_a_finding() -> None:
    """Once a KeyError, which was reported as a wrong type in the file."""
    values = {"kind": "llamacpp", "image": "registry.example/llamacpp:1.6.1"}
    findings = check(vllm_agg({"engine": values}))
    assert [f.message for f in findings if f.rule == "PS307"] == [
        "the checks of worker's memory are skipped: penstock has no memory model for llamacpp"
    ]
    assert not {f.rule for f in findings} & {"PS006", "PS301", "PS302", "PS303", "PS304", "PS305"}


def test_the_command_line_may_name_gpu_and_model(tmp_path: Path) -> None:
    """The manifest names neither; with --gpu its memory is checked."""
    path = tmp_path / "manifest.yaml"
    path.write_text(manifest({**TRTLLM_AGG, "hardware": {}}, {"worker/max_seq_len": REMOVE}))
    assert "PS307" in penstock("check", str(path)).stdout
    assert "PS307" not in penstock("check", str(path), "--gpu", "b200").stdout


def test_explain_prints_the_memory(tmp_path: Path) -> None:
    done = penstock("explain", "--memory", str(GRAPHS[-1].with_name("gpt-oss-20b-h100.yaml")))
    assert "weights" in done.stdout
    assert "Per token:   48.0 KiB" in done.stdout
    rows = penstock(
        "explain", "--memory", "--json", str(ROOT / "dynamo_graphs/gpt-oss-120b-b200-disagg.yaml")
    )
    assert [row["component"] for row in json.loads(rows.stdout)] == ["prefill", "decode"]
    path = tmp_path / "unknown.yaml"
    path.write_text(graph({**TRTLLM_AGG, "hardware": {}}))
    assert "the GPU is not stated" in penstock("explain", "--memory", str(path)).stderr


HEAVY = ("pydantic", "rich", "kubernetes", "helm_python", "asyncio")


@pytest.mark.slow
@pytest.mark.parametrize("base", [VLLM_DISAGG, SGLANG_DISAGG, TRTLLM_DISAGG])
def test_the_check_of_a_manifest_imports_nothing_heavy(
    base: Mapping[str, Any], tmp_path: Path
) -> None:
    """They would take longer to import than the manifest takes to check."""
    path = tmp_path / "manifest.yaml"
    path.write_text(manifest(base, {}))
    code = (
        "import sys; from penstock.cli.main import main; main(['check', sys.argv[1]]);"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True)
    assert done.stderr == ""
    assert "1 file: " in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


def test_colors_are_for_terminals_and_forced_colors(
    wrong: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = penstock("check", str(wrong)).stdout
    monkeypatch.setenv("FORCE_COLOR", "1")
    colored = penstock("check", str(wrong)).stdout
    assert "\x1b[1mPS102\x1b[0m \x1b[31merror\x1b[0m" in colored
    assert re.sub(r"\x1b\[\d+m", "", colored) == plain
    monkeypatch.setenv("NO_COLOR", "1")
    assert penstock("check", str(wrong)).stdout == plain


def test_both_nixl_plugins_and_efa_are_one_finding() -> None:
    for prefill, decode, changed in ((UCX, LIBFABRIC, "prefill"), (LIBFABRIC, UCX, "decode")):
        findings = check(pools(prefill, decode, limits=EFA))
        (finding,) = (f for f in findings if f.rule in ("PS455", "PS473"))
        assert finding.rule == "PS473"
        assert finding.fix == (
            f'Set "backends": ["LIBFABRIC"] in kv_connector_extra_config on {changed}.'
        )


def test_a_section_that_is_no_json_is_named_as_such() -> None:
    arguments = ("--kv-transfer-config", "{kv_connector: NixlConnector}")
    findings = check(deployment(component("vllm", "--model", "Qwen/Qwen3-8B", *arguments)))
    assert [f.message for f in findings if f.rule == "PS143"] == [
        "--kv-transfer-config is '{kv_connector: NixlConnector}', but must be JSON"
    ]


@pytest.mark.parametrize(
    ("config", "also"),
    [
        (BY_LOAD, ""),
        (
            {"optimization_target": "load"},
            ", and optimization_target to sla with ttft_ms and itl_ms",
        ),
    ],
)
def test_the_fix_of_load_scaling_is_to_scale_by_throughput(
    config: dict[str, Any], also: str
) -> None:
    (finding,) = check(planned("1.4.2", "sglang", SGLANG_DISAGG, config), only="PS922")
    assert finding.fix == f"Use throughput scaling: set enable_load_scaling to false{also}."
