"""Which settings of a manifest reach a process on this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import pytest

from penstock.local.untrusted import safe_arguments, safe_variables
from tests.local.builders import deployment, frontend, mocker
from tests.local.test_adapt import adapted

LISTED = """
--benchmark-output-path --config --custom-encoder-class --download-dir --dump-config-to
--frontend-route-extension --io-processor-plugin --log-config-file --logging-config
--logits-processors --media-output-fs-url --media-output-http-url
--mm-encoder-fp8-scale-save-path --model-class-overrides --otlp-traces-endpoint
--profiler-config --reasoning-parser-plugin --scheduler-cls --trust-remote-code --worker-cls
--worker-extension-cls --allowed-local-media-path --data-parallel-address --master-addr
--model-express-url
"""


@pytest.mark.parametrize(
    "name",
    [
        *("PYTHONPATH", "PYTHONSTARTUP", "PYTHONHOME", "PYTHONINSPECT", "PYTHONBREAKPOINT"),
        *("LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "BASH_ENV", "ENV", "PATH", "HOME", "TMPDIR"),
        *("DYN_FRONTEND_ROUTE_EXTENSIONS", "DYN_FRONTEND_JEMALLOC", "DYN_TRUST_REMOTE_CODE"),
        *("VLLM_PLUGINS", "VLLM_LOGGING_CONFIG_PATH", "VLLM_CACHE_ROOT", "SGLANG_PLUGINS"),
        *("NCCL_NET_PLUGIN", "NIXL_PLUGIN_DIR", "UCX_MODULE_DIR", "CUDA_INJECTION64_PATH"),
        *("DYN_DUMP_CONFIG_TO", "DYN_AUDIT_OUTPUT_PATH", "DYN_REQUEST_TRACE_FILE_PATH"),
        *("DYN_REQUEST_TRACE_S3_BUCKET", "DYN_AUDIT_SINKS", "OTEL_EXPORTER_OTLP_ENDPOINT"),
        *("HTTP_PROXY", "https_proxy", "SSL_CERT_FILE", "HF_ENDPOINT", "GIT_SSH_COMMAND"),
        *("UCX_LOG_FILE", "NCCL_DEBUG_FILE", "NCCL_TOPO_DUMP_FILE", "OPENSSL_CONF"),
        *("DYN_MODEL_EXPRESS_URL", "OTEL_CONFIG_FILE", "NCCL_COMM_ID", "VLLM_DP_MASTER_IP"),
        *("UCX_GDB_COMMAND", "UCX_ERROR_SIGNALS", "UCX_CONFIG_DIR", "NCCL_CONF_FILE"),
        *("MKL_VERBOSE_OUTPUT_FILE", "UCX_STATS_DEST", "DYN_BENCH_KV_WARMUP_CACHE_DIR"),
        *("DYN_LOGGING_CONFIG_PATH", "DYN_TCP_TLS_KEY_PATH", "DYN_ROUTER_TRACKING_KEY_FILE"),
        *("DYN_TOPOLOGY_MOUNT_PATH", "NATS_TLS_CA_CERT_PATH", "ETCD_AUTH_CLIENT_KEY"),
        *("VLLM_ALLOW_INSECURE_SERIALIZATION", "DYN_MM_LOCAL_PATH", "PYTHONPYCACHEPREFIX"),
    ],
)
def test_a_variable_that_could_reach_beyond_the_process_is_left_out(name: str) -> None:
    kept, reasons = safe_variables({name: "x", "DYN_LOG": "debug"})
    assert kept == {"DYN_LOG": "debug"}
    assert list(reasons) == [name]
    assert reasons[name]


def test_the_reason_of_a_variable_that_records_text_names_it() -> None:
    _, reasons = safe_variables({"DYN_REQUEST_TRACE_RECORDS": "request_end,request_payload"})
    assert set(reasons.values()) == {"records prompts, outputs or headers in files on this machine"}


@pytest.mark.parametrize(
    "name",
    [
        *("DYN_LOG", "DYN_ROUTER_MODE", "DYN_ROUTER_POLICY_CONFIG", "DYN_MIGRATION_LIMIT"),
        *("DYN_HTTP_OVERLOAD_STATUS_CODES", "DYN_LOGGING_JSONL", "DYN_TOKENIZER", "NATS_SERVER"),
        *("DYN_SYSTEM_HEALTH_PATH", "DYN_HTTP_SVC_CHAT_PATH", "DYN_MODEL_PATH"),
        *("VLLM_LOGGING_LEVEL", "VLLM_CPU_KVCACHE_SPACE", "VLLM_NIXL_SIDE_CHANNEL_PORT"),
        *(
            "UCX_TLS",
            "UCX_NET_DEVICES",
            "OMP_NUM_THREADS",
            "FI_PROVIDER",
            "UCX_MEMTYPE_CACHE",
            "RUST_LOG",
            "TOKENIZERS_PARALLELISM",
        ),
        *(
            "NCCL_DEBUG",
            "TRTLLM_ENABLE_PDL",
            "POD_NAME",
            "PYTHONHASHSEED",
            "DYN_CUSTOM_JINJA_TEMPLATE",
        ),
    ],
)
def test_a_setting_of_dynamo_or_the_engine_is_kept(name: str) -> None:
    assert safe_variables({name: "x"}) == ({name: "x"}, {})


def known_flags() -> Iterator[str]:
    """Every flag in the tables of Dynamo's and vLLM's parsers."""

    def walk(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            value = list(value.values())
        if isinstance(value, list):
            for item in value:
                yield from walk(item)
        elif isinstance(value, str) and value.startswith("--"):
            yield value

    for name in ("dynamo_flags.json", "vllm_flags.json"):
        text = files("penstock.engines.data").joinpath(name).read_text("utf-8")
        yield from walk(json.loads(text))


def test_exactly_the_listed_flags_of_the_parsers_are_left_out() -> None:
    flags = sorted(set(known_flags()))
    assert len(flags) > 300
    assert {flag for flag in flags if safe_arguments([flag, "x"], {})[1]} == set(LISTED.split())


@pytest.mark.parametrize(
    "arguments",
    [
        ["--frontend-route-extension", "os:abort"],
        ["--frontend-route-extension=os:abort"],
        ["--frontend-route-ext", "os:abort"],  # argparse accepts unique abbreviations
        ["--trust-remote-code"],
        ["--trust_remote_code"],  # vLLM accepts underscores
        ["--worker-cls", "m:W"],
        ["--config", "/etc/x/vllm.yaml"],
        ["--logits-processors", "a:B", "c:D"],
        ["--kv-transfer-config", '{"kv_connector": "X", "kv_connector_module_path": "m"}'],
        ["--kv-transfer-config.kv_connector_module_path", "m"],
        ["--speculative-config={'draft_cls': 'm:D'}"],
        ["--dump-config-to", "/home/me/.bashrc"],
        ["--config=/etc/x/vllm.yaml"],
        ["--compilation-config", '{"inductor_passes": {"post": "m.f"}}'],
        ["--compilation-config.backend", "m.Backend"],
        ["-cc", '{"debug_dump_path": "/home/me"}'],
        ["-cc.backend=m.Backend"],
        ["-O", '{"pass": {"x": [{"backend": "m.Backend"}]}}'],
        ["--distributed-executor-backend", "m.Executor"],
        ["--kv-transfer-config", '{"kv_connector_extra_config": {"a": [{"x_plugin": "m"}]}}'],
        ["--kv-events-config", '{"endpoint": "tcp://collector.example:5557"}'],
        ["--stage-configs-path", "/etc/x"],
        ["--parallel-config.worker-cls", "m.W"],
        ["--speculative-config", "[" * 100_000],
        ["--hf-overrides", '{"a": ' + "1" * 5000 + "}"],
        ["--speculative-config", '{"method": "custom_class", "model": "m.X"}'],
        ["-sc", '{"method": "custom_class", "model": "m.X"}'],
        ["-c.inductor_compile_config.post", "m.f"],
        ["--kv-events-config", '{"endpoint": "tcp://0.0.0.0.evil.example:5557"}'],
        ["--kv-events-config", '{"endpoint": "tcp://127.0.0.1:0;evil.example:5557"}'],
        ["--kv-transfer-config", '{"kv_connector_extra_config": {"shared_storage_path": "/"}}'],
        ["--config"],
    ],
)
def test_a_flag_that_could_reach_beyond_the_process_is_left_out(arguments: list[str]) -> None:
    around = ["python", "-m", "dynamo.vllm", "--model", "m"]
    kept, reasons = safe_arguments([*around, *arguments, "--seed", "1"], {})
    assert kept == (*around, "--seed", "1")
    assert len(reasons) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["-O3"],
        ["-cc.mode=3", "-cc", '{"cudagraph_mode": "FULL", "backend": "inductor"}'],
        ["--distributed-executor-backend", "mp"],
        ["--kv-transfer-config", '{"kv_connector_module_path": "kvbm.vllm_integration.connector"}'],
        ["--kv-transfer-config", '{"kv_connector": "NixlConnector", "kv_role": "kv_both"}'],
        ["--kv-events-config", '{"endpoint": "tcp://*:5557", "enable_kv_cache_events": true}'],
        ["--speculative-config", '{"method": "eagle3", "model": "a/b", "draft_module_path": null}'],
    ],
)
def test_an_ordinary_setting_is_kept(arguments: list[str]) -> None:
    argv = ("python", "-m", "dynamo.vllm", *arguments, "--seed", "1")
    assert safe_arguments(argv, {}) == (argv, {})


@pytest.mark.parametrize(
    ("text", "is_kept"),
    [
        ("dtype: float32\nblock-size: 32\nkv-transfer-config: {kv_connector: NixlConnector}", True),
        ("trust-remote-code: false", True),
        ("trust-remote-code: true", False),
        ("worker_cls: m.W", False),
        ("kv-transfer-config: {kv_connector_module_path: m}", False),
        ("kv-transfer-config.kv_connector_module_path: m", False),
        (
            "k0: &k0 [1, 1]\n"
            + "".join(f"k{n + 1}: &k{n + 1} [*k{n}, *k{n}]\n" for n in range(40)),
            False,  # more values than a reader accepts
        ),
        ("a: [", False),
        ("- a", False),
        ("""kv-transfer-config: '{"kv_connector_module_path": "m"}'""", False),
        ("trust-remote-cod: true", False),
        ('enable-prefix-caching: "--trust-remote-code"', False),
        ("served-model-name: [a, --worker-cls, m.W]", False),
        ('"worker-cls=m.W": true', False),
        ("served-model-name: [a, b]", True),
    ],
)
def test_the_file_of_config_is_judged_by_its_keys(text: str, is_kept: bool) -> None:
    argv = ("python", "-m", "dynamo.vllm", "--config", "/etc/c.yaml")
    kept, reasons = safe_arguments(argv, {"/etc/c.yaml": text})
    assert (kept == argv, not reasons) == (is_kept, is_kept)


def test_the_values_of_a_kept_flag_stay() -> None:
    argv = ["p", "--router-mode", "kv", "--stop", "-1", "--lora-modules", "a=b", "c=d", "--x="]
    assert safe_arguments(argv, {}) == (tuple(argv), {})


def test_up_ignores_code_of_a_manifest_and_says_so() -> None:
    local = adapted(
        deployment(
            frontend(
                "--frontend-route-extension",
                "os:abort",
                env={"PYTHONPATH": "/etc/x/m.zip", "DYN_ROUTER_MODE": "kv"},
            ),
            mocker("prefill", "prefill"),
            mocker("decode", "decode"),
        )
    )
    program = local.program("frontend")
    assert program is not None
    assert program.env == {"DYN_ROUTER_MODE": "kv"}
    assert not any("os:abort" in part for part in program.argv)
    (note,) = [note for note in local.notes if "ignoring" in note]
    assert note.endswith("PYTHONPATH: can run code on this machine")
