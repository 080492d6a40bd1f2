"""`penstock gateway`: its output and its errors, neither of which shows a key."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from penstock.cli import gateway
from penstock.local.ports import LOOPBACK, Ports, reserved
from penstock.local.run_envoy import redact_keys
from shadow import KEY, GatewayProcess
from tests.gateway.samples import (
    BACKENDS,
    EXAMPLE,
    MINIMAL,
    PLANTED,
    RENDERED,
    ROOT,
    SHADOW,
)
from tests.support.emulated_cluster.released import certificate

pytestmark = pytest.mark.slow

PAGE = ROOT / "docs" / "gateway.md"


def penstock(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "penstock.cli.main", "gateway", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
    )


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    """A gateway file, and a keys file with a planted key."""
    gateway, keys = tmp_path / "gateway.yaml", tmp_path / "keys.env"
    gateway.write_text(MINIMAL + BACKENDS + SHADOW)
    keys.touch(mode=0o600)
    keys.write_text(f"tester={PLANTED}\n")
    return str(gateway), str(keys)


def test_render_prints_the_shipped_manifests() -> None:
    done = penstock("render", str(EXAMPLE))
    assert (done.returncode, done.stdout) == (0, RENDERED.read_text())


def test_render_reports_every_mistake(tmp_path: Path) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text(MINIMAL + "backends: [{release: a, weight: 0}]\n")
    done = penstock("render", str(file))
    assert done.returncode == 4
    assert f"penstock gateway: {file}:7 backends: all weights are 0" in done.stderr


def test_a_missing_environment_is_reported_with_the_command(
    files: tuple[str, str], tmp_path: Path
) -> None:
    none = str(tmp_path / "none")
    done = penstock("up", files[0], "--keys", files[1], PENSTOCK_ENVIRONMENTS=none)
    assert done.returncode == 8
    assert "penstock tools env install envoy" in done.stderr
    assert PLANTED not in done.stdout + done.stderr


def test_up_without_keys_is_an_error(files: tuple[str, str]) -> None:
    done = penstock("up", files[0])
    assert (done.returncode, "--keys is required" in done.stderr) == (2, True)


@pytest.mark.needs("envoy")
def test_a_missing_url_is_reported_before_anything_starts(files: tuple[str, str]) -> None:
    done = penstock("up", files[0], "--keys", files[1])
    assert done.returncode == 2
    assert "add --backend stable=URL" in done.stderr
    assert "add --shadow URL" in done.stderr
    assert PLANTED not in done.stdout + done.stderr


@pytest.mark.needs("envoy")
def test_a_port_in_use_is_reported(tmp_path: Path) -> None:
    backends = {"stable": "http://127.0.0.1:1"}
    with GatewayProcess(tmp_path / "one", BACKENDS, backends) as first:
        second = GatewayProcess(tmp_path / "two", BACKENDS, backends)
        second.argv[second.argv.index("--port") + 1] = str(first.port)
        with pytest.raises(TimeoutError, match="choose another port with --port N"), second:
            pass
        assert second.code == 9


@pytest.mark.needs("envoy")
def test_a_port_of_a_gateway_that_is_starting_is_in_use(files: tuple[str, str]) -> None:
    """Two Envoys of one user can listen on the same port."""
    port = Ports().free()
    argv = ["up", files[0], "--keys", files[1], "--shadow", "http://127.0.0.1:2"]
    argv += ["--backend", "stable=http://127.0.0.1:1", "--port", str(port)]
    with reserved(LOOPBACK, port):
        done = penstock(*argv)
    assert done.returncode == 9
    assert f"--port: cannot listen on {LOOPBACK}:{port}" in done.stderr


@pytest.mark.needs("envoy")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_running_gateway_shows_no_key_and_leaves_nothing(
    tmp_path: Path, number: signal.Signals
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    os.environ["TMPDIR"] = str(scratch)
    try:
        with GatewayProcess(tmp_path, BACKENDS, {"stable": "http://127.0.0.1:1"}) as process:
            family = psutil.Process(process.pid)
            members = [family, *family.children(recursive=True)]
            assert any("envoy" in p.name() for p in members)
            assert all(KEY not in " ".join(p.cmdline()) for p in members)
            folders = [*scratch.iterdir()]  # of the weights, and of Envoy's admin interface
            assert all(folder.stat().st_mode & 0o077 == 0 for folder in folders)
            files = [path for folder in folders for path in folder.iterdir()]
            written = [path for path in files if not path.is_socket()]
            assert {path.name for path in written} == {"backends.json", "shadow.json"}
            assert all(KEY not in path.read_text() for path in written)
            listening = [
                c.laddr.ip
                for p in members
                for c in p.net_connections("tcp")
                if c.status == psutil.CONN_LISTEN
            ]
            assert set(listening) == {"127.0.0.1"}
            family.send_signal(number)
            assert process.wait() == 0
    finally:
        del os.environ["TMPDIR"]
    assert [p for p in members if p.is_running() and p.status() != psutil.STATUS_ZOMBIE] == []
    assert list(scratch.iterdir()) == []
    assert KEY not in process.log.read_text()


@pytest.mark.needs("envoy")
def test_envoys_message_about_a_broken_configuration_shows_no_key(
    tmp_path: Path, files: tuple[str, str]
) -> None:
    """With a certificate that only OpenSSL reads, Envoy exits and prints its whole
    configuration."""
    port = str(Ports().free())
    argv = ["up", files[0], "--keys", files[1], "--port", port, "--shadow", "http://127.0.0.1:2"]
    chain, key = certificate(tmp_path, curve="secp256k1")
    tls = ["--tls-cert", str(chain), "--tls-key", str(key)]
    done = penstock(*argv, "--backend", "stable=http://127.0.0.1:1", *tls)
    assert done.returncode == 12
    assert chain.name in done.stderr
    assert PLANTED not in done.stdout + done.stderr


@pytest.mark.needs("envoy")
def test_envoy_ends_with_a_gateway_that_is_killed(tmp_path: Path) -> None:
    """Otherwise it would accept keys that were withdrawn since."""
    process = GatewayProcess(tmp_path, BACKENDS, {"stable": "http://127.0.0.1:1"})
    with process:
        (envoy,) = psutil.Process(process.pid).children()
        assert "envoy" in envoy.name()
        os.kill(process.pid, signal.SIGKILL)
        _, alive = psutil.wait_procs([envoy], timeout=10)
        assert alive == []


def test_a_key_that_is_part_of_another_is_redacted_too() -> None:
    keys = (PLANTED, f"{PLANTED}-longer")
    assert redact_keys(keys, f"a {PLANTED}-longer b {PLANTED}") == "a (key) b (key)"


def test_every_command_of_the_page_parses() -> None:
    text = PAGE.read_text().replace("`", "\n").replace("\\\n", " ").replace("uv run ", "")
    lines = [" ".join(line.split()) for line in text.splitlines()]
    commands = [line for line in lines if line.startswith("penstock gateway ")]
    assert len(commands) >= 3
    parser = argparse.ArgumentParser()
    gateway.add_arguments(parser)
    for command in commands:
        parser.parse_args(command.split(" | ")[0].split()[2:])


def test_the_pages_figures_are_the_benchmarks() -> None:
    result = json.loads((ROOT / "benchmarks" / "results" / "shadow.json").read_text())
    text = PAGE.read_text()
    assert result["copied_to_the_live_shadow"] in text
    for mode in ("shadow_killed", "shadow_hangs", "shadow_20_percent"):
        measured = result["modes"][mode]
        assert measured["failed"] == 0
        p50, p95 = (measured[f"{name}_relative_to_no_shadow"] for name in ("p50", "p95"))
        ratios = f"p50 × {p50}, p95 × {p95}"
        assert ratios in text
    assert result["modes"]["shadow_killed"]["p50_relative_to_no_shadow"] < 1.05
