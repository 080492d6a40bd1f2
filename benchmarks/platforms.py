"""On which platforms the wheel installs: whether the index has wheels of everything that it needs.

    python benchmarks/platforms.py

uv resolves the dependencies for each platform and Python version without building anything. On
this machine's platform they are also installed, with each Python that uv finds, and the time and
the size are measured; the time depends on uv's cache.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from report import write_result

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PLATFORMS = {
    "Linux x86-64": "x86_64-manylinux_2_28",
    "Linux aarch64": "aarch64-manylinux_2_28",
    "macOS arm64": "aarch64-apple-darwin",
    "macOS x86-64": "x86_64-apple-darwin",
    "Windows x86-64": "x86_64-pc-windows-msvc",
}
NO_WHEEL = re.compile(r"Because (\S+?)==\S+ has no (?:usable )?wheels")


def uv(*arguments: str, folder: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["uv", *arguments], cwd=folder, text=True, capture_output=True, check=False
    )


def resolved(requirement: str, platform: str, python: str, folder: str) -> str:
    """`yes`, or the first package without a wheel."""
    file = Path(folder) / "in.txt"
    file.write_text(requirement)
    options = ["--only-binary", ":all:", "--python-platform", platform, "--python-version", python]
    done = uv("pip", "compile", "--quiet", *options, str(file), folder=folder)
    if done.returncode == 0:
        return "yes"
    found = NO_WHEEL.search(" ".join(done.stderr.split()))
    return f"no wheel of {found[1]}" if found else done.stderr.strip()


def installed(wheel: Path, python: str, folder: str) -> dict[str, object]:
    """Seconds and MB of an installation; empty if this machine does not have the Python."""
    made = Path(folder) / python
    if uv("venv", "--offline", "--python", python, str(made), folder=folder).returncode != 0:
        return {}
    install = ("pip", "install", "--python", str(made / "bin" / "python"), str(wheel))
    start = time.monotonic()
    done = uv(*install, folder=folder)
    if done.returncode != 0:
        return {"error": done.stderr.strip()}
    seconds = time.monotonic() - start
    size = sum(p.stat().st_size for p in made.rglob("*") if p.is_file() and not p.is_symlink())
    command = [str(made / "bin" / "penstock"), "check", "quickstart-simulated.yaml"]
    graph = next(made.glob("lib/*/site-packages/penstock/graphs/quickstart-simulated.yaml"))
    (Path(folder) / graph.name).write_text(graph.read_text())
    checked = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return {
        "seconds": round(seconds, 1),
        "megabytes": round(size / 1e6),
        "check": checked.stdout.strip().splitlines()[-1],
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        built = uv("build", "--wheel", "--out-dir", folder, str(ROOT), folder=folder)
        if built.returncode != 0:
            sys.exit(built.stderr)
        (wheel,) = Path(folder).glob("*.whl")
        requirement = f"penstock @ {wheel.as_uri()}"
        wheels = {
            name: {python: resolved(requirement, tag, python, folder) for python in PYTHONS}
            for name, tag in PLATFORMS.items()
        }
        here = {python: installed(wheel, python, folder) for python in PYTHONS}
        figures = {"wheels": wheels, "installed_here": {k: v for k, v in here.items() if v}}
        write_result("platforms", "python benchmarks/platforms.py", figures)


if __name__ == "__main__":
    main()
