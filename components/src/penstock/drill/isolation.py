"""Faults of the network and the disk, in Linux namespaces that only the drill uses.

The drill re-executes itself in a new network and mount namespace. There, nftables and tc drop and
delay packets on a separate loopback interface, and the graph's files are on a tmpfs. The machine's
network and disks are not changed, even if the drill is killed. The graph cannot reach other hosts.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import socket
import struct
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from penstock.errors import DrillError

INSIDE = "PENSTOCK_DRILL_ISOLATED"
# Without root, a user namespace grants the privileges that the other two need.
NAMESPACES = (
    ("unshare", "--net", "--mount", "--"),
    ("unshare", "--user", "--map-root-user", "--net", "--mount", "--"),
)
SIOCSIFFLAGS, IFF_UP, IFF_RUNNING = 0x8914, 0x1, 0x40
TABLE = "penstock_drill"
SPARE = 2**20  # bytes
BURST = 70_000  # bytes; must be more than a packet, which on loopback has up to 64 KiB


def is_inside() -> bool:
    """Whether this process has its own network and mounts."""
    return os.environ.get(INSIDE, _network()) != _network()


def _network() -> str:
    return str(Path("/proc/self/ns/net").readlink())


def prefix() -> tuple[str, ...] | None:
    """The command that creates the namespaces; None where this machine does not permit it."""
    tools = ("unshare", "nft", "tc", "mount")
    if any(shutil.which(tool, path=_path()) is None for tool in tools):
        return None
    for command in NAMESPACES:
        tried = subprocess.run(
            [*command, "sh", "-c", "mount -t tmpfs none /tmp && nft -f -"],
            input=_table(_loss(1), "tcp dport { 1 } drop").encode(),
            capture_output=True,
            check=False,
            env=os.environ | {"PATH": _path()},
        )
        if tried.returncode == 0:
            return command
    return None


def enter(namespaces: Sequence[str], command: Sequence[str]) -> None:
    """Replace this process by ``command`` in the namespaces."""
    env = os.environ | {INSIDE: _network(), "PATH": _path()}
    os.execvpe(namespaces[0], [*namespaces, *command], env)  # noqa: S606


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def start_loopback() -> None:
    """Bring up loopback, which is down in a new network namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        flags = struct.pack("16sH14x", b"lo", IFF_UP | IFF_RUNNING)
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, flags)


@contextlib.contextmanager
def disk(folder: Path) -> Iterator[Path]:
    """An empty tmpfs in ``folder``; outside the namespaces just a folder."""
    mounted = folder / "disk"
    mounted.mkdir()
    if not is_inside():
        yield mounted
        return
    _run("mount", "-t", "tmpfs", "none", str(mounted))
    try:
        yield mounted
    finally:
        _run("umount", "--lazy", str(mounted))


@contextlib.contextmanager
def full_disk(mounted: Path) -> Iterator[None]:
    """No space is left on the tmpfs."""
    usage = shutil.disk_usage(mounted)
    # The remount fails if the size is below the space in use, which may grow before it runs.
    _run("mount", "-o", f"remount,size={usage.used + SPARE}", str(mounted))
    filler = mounted / "filler"
    try:
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
        yield
    finally:
        filler.unlink(missing_ok=True)
        _run("mount", "-o", f"remount,size={usage.total}", str(mounted))


def lost_packets(percent: int) -> contextlib.AbstractContextManager[None]:
    """Drop a percentage of all TCP packets; TCP retransmits them after 0.2 s or more."""
    return _dropped(_loss(percent))


def _loss(percent: int) -> str:
    return f"meta l4proto tcp numgen random mod 100 < {percent} drop"


@contextlib.contextmanager
def slow_network(kbit_per_s: int, most_s: float) -> Iterator[None]:
    """All connections share this rate. A packet waits for at most ``most_s``, or is dropped.

    netem, which delays every packet by the same time, is missing in some kernels.
    """
    rate = ("rate", f"{kbit_per_s}kbit", "burst", str(BURST), "latency", f"{most_s * 1000:.0f}ms")
    _run("tc", "qdisc", "add", "dev", "lo", "root", "tbf", *rate)
    try:
        yield
    finally:
        _run("tc", "qdisc", "delete", "dev", "lo", "root")


@contextlib.contextmanager
def partitioned(pids: Sequence[int]) -> Iterator[None]:
    """Drop all packets from and to the ports that these processes use now. New connections from
    them still work."""
    ports = ", ".join(str(port) for port in sorted(_ports(pids)))
    if not ports:
        yield
        return
    with _dropped(f"tcp dport {{ {ports} }} drop", f"tcp sport {{ {ports} }} drop"):
        yield


def _ports(pids: Sequence[int]) -> set[int]:
    ports: set[int] = set()
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            for each in (process, *process.children(recursive=True)):
                ports |= {c.laddr.port for c in each.net_connections("tcp") if c.laddr}
    return ports


@contextlib.contextmanager
def _dropped(*rules: str) -> Iterator[None]:
    _run("nft", "-f", "-", text=_table(*rules))
    try:
        yield
    finally:
        _run("nft", "delete", "table", "inet", TABLE)


def _table(*rules: str) -> str:
    chain = "\n".join(("type filter hook input priority 0", *rules))
    return f"table inet {TABLE} {{\nchain input {{\n{chain}\n}}\n}}\n"


def _run(*command: str, text: str = "") -> None:
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise DrillError(f"`{' '.join(command)}` failed: {done.stderr.strip()}")
