"""SGLang: unchecked, and still simulated from the flags that matter."""

from __future__ import annotations

from penstock.engines.engine import NoSimulation
from penstock.engines.parsers import NotParsed
from penstock.engines.table import simulate
from penstock.manifests.deployment import Engine, KnownConfig, NoConfig, UnknownConfig

from .launches import component, launch, line_about, simulated, value_of


def test_the_flags_of_the_mocker_are_simulated() -> None:
    found = simulated(
        Engine.SGLANG,
        "--model-path a/b --served-model-name n --page-size 64 --max-total-tokens 640000"
        " --context-length 4096 --dp-size 2 --disaggregation-mode decode --tp 8 --unknown x",
    )
    assert (found.model, found.served_names) == ("a/b", ("n",))
    assert value_of(found, "--num-gpu-blocks-override") == "10000"
    assert value_of(found, "--data-parallel-size") == "2"
    assert value_of(found, "--disaggregation-mode") == "decode"
    assert line_about(found.not_simulated, "SGLang's flags are not checked")


def test_the_command_line_overrides_flags_of_a_yaml_file() -> None:
    yaml = {
        "model-path": "a/b",
        "page-size": 64,
        "context-length": 4096,
        "disable-radix-cache": False,
        "kv-events-config": {"publisher": "zmq"},
    }
    known = KnownConfig(values=yaml, path="/c.yaml", place="ConfigMap/c/c.yaml")
    found = simulated(Engine.SGLANG, "--config /c.yaml --page-size 32", known)
    assert found.model == "a/b"
    assert value_of(found, "--block-size") == "32"
    assert value_of(found, "--max-model-len") == "4096"
    assert "KV events published (--kv-events-config)" in found.simulated


def test_a_model_set_in_an_unread_file_has_no_mocker() -> None:
    started = launch("dynamo.sglang --config /c.yaml")
    unread = UnknownConfig(path="/c.yaml", reason="it is in the image")
    unparsed = NotParsed(component="worker", reason="no parser")
    found = simulate(component(started, Engine.SGLANG, unread), started, unparsed)
    assert isinstance(found, NoSimulation)
    assert "/c.yaml: it is in the image" in found.reason


def test_a_page_size_that_the_mocker_rejects_is_replaced_and_reported() -> None:
    found = simulated(Engine.SGLANG, "--model-path a/b --page-size 48")
    assert value_of(found, "--block-size") == "32"
    assert line_about(found.not_simulated, "block size 48").endswith("it uses 32")


def test_chunked_prefill_cannot_be_disabled_which_is_reported() -> None:
    found = simulated(Engine.SGLANG, "--model-path a/b --chunked-prefill-size -1")
    assert "--no-enable-chunked-prefill" not in found.arguments
    assert line_about(found.not_simulated, "chunked prefill off")


def test_a_disabled_radix_cache_disables_prefix_caching() -> None:
    found = simulated(Engine.SGLANG, "--model-path a/b --disable-radix-cache")
    assert "--no-enable-prefix-caching" in found.arguments


def test_a_flag_without_its_value_has_no_mocker() -> None:
    started = launch("dynamo.sglang --model-path")
    unparsed = NotParsed(component="worker", reason="no parser")
    found = simulate(component(started, Engine.SGLANG, NoConfig()), started, unparsed)
    assert isinstance(found, NoSimulation)
