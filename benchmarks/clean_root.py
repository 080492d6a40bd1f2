"""A fresh Debian with a new user, in namespaces of its own, that counts what it downloads.

The network namespace has only loopback. The one way out is a proxy, which counts every byte, TLS
included. Ending the first process of the PID namespace ends everything in it.
Needs root, `debootstrap`, `unshare`, `nsenter` and `chroot`; for `first_contact.py`.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import socket
import subprocess
import threading
from pathlib import Path

USER = "newcomer"
PROXY_PORT = 3128
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
PACKAGES = "python3-venv,python3-pip,git,curl,ca-certificates"
CLONE_NEWNET = 0x40000000


def debootstrap(root: Path) -> None:
    """Debian 12 with Python, git and curl, unless ``root`` has it, and a new user."""
    if not (root / "etc" / "debian_version").exists():
        _run("debootstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", str(root))
    home = root / "home" / USER
    if home.exists():
        _run("chroot", str(root), "userdel", "--remove", USER)
    _run("chroot", str(root), "useradd", "--create-home", "--shell", "/bin/bash", USER)
    # The certificates of this machine, whose network may add its own.
    shutil.copy(CERTIFICATES, root / CERTIFICATES.lstrip("/"))


class CleanRoot:
    """The running namespaces; a context manager that ends every process in them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.counter = ByteCounter()

    def __enter__(self) -> CleanRoot:
        up = "ip link set lo up; mount -t proc proc proc; mount --rbind /dev dev"
        self._process = subprocess.Popen(
            [
                *("unshare", "--net", "--pid", "--mount", "--ipc", "--fork", "--kill-child"),
                *("sh", "-c", f"{up}; echo started; exec chroot . sleep infinity"),
            ],
            cwd=self.root,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline() != b"started\n":
            raise SystemExit("The namespaces could not be made; root is needed.")
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        self._pid = int(children.read_text().split()[0])
        self.counter.start(self._pid)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self.counter.stop()

    def processes(self) -> list[str]:
        """The command lines of the running processes, without the first process."""
        lines = [_command_line(pid) for pid in self._pids() if pid != self._pid]
        return [line for line in lines if line]  # a zombie has none

    def cpu_seconds(self) -> float:
        """CPU time so far of the processes that still run, and of their children that ended."""
        return sum(map(_cpu_seconds, self._pids()))

    def _pids(self) -> list[int]:
        namespace = Path(f"/proc/{self._pid}/ns/pid").readlink()
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if (entry / "ns" / "pid").readlink() == namespace:
                    found.append(int(entry.name))
            except OSError:  # ended
                continue
        return found

    def start(self, command: str) -> subprocess.Popen[str]:
        """``command`` in bash as the new user; its output and errors are one stream."""
        variables = {
            "HOME": f"/home/{USER}",
            "USER": USER,
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "HTTPS_PROXY": f"http://127.0.0.1:{PROXY_PORT}",
            "SSL_CERT_FILE": CERTIFICATES,
            "PIP_CERT": CERTIFICATES,
        }
        given = [f"{name}={value}" for name, value in variables.items()]
        chroot = ["chroot", f"--userspec={USER}", str(self.root), "env", "-i", *given]
        enter = ["nsenter", "-t", str(self._pid), "-n", "-p", "-m", "-i"]
        return subprocess.Popen(
            [*enter, *chroot, "bash", "-c", f"cd; {command}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


class ByteCounter:
    """An HTTP proxy (CONNECT only) on the loopback of a network namespace.

    It connects from the namespace of this process. ``received`` are bytes from servers.
    """

    def __init__(self) -> None:
        self.received = 0
        self._lock = threading.Lock()

    def start(self, pid: int) -> None:
        """Listen in the network namespace of process ``pid``."""
        made: list[socket.socket] = []
        # A thread can change its namespace without changing that of the others.
        thread = threading.Thread(target=lambda: made.append(_listen_in(pid)))
        thread.start()
        thread.join()
        (self._listener,) = made
        threading.Thread(target=self._accept, daemon=True).start()

    def stop(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            part = client.recv(4096)
            if not part:
                return
            head += part
        method, target, _ = head.split(b" ", 2)
        if method != b"CONNECT":
            client.sendall(b"HTTP/1.1 405 Method Not Allowed\r\n\r\n")
            client.close()
            return
        host, _, port = target.decode().rpartition(":")
        server = socket.create_connection((host, int(port)), timeout=60)
        server.settimeout(None)
        client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        threading.Thread(target=self._copy, args=(client, server, False), daemon=True).start()
        self._copy(server, client, True)

    def _copy(self, source: socket.socket, to: socket.socket, is_counted: bool) -> None:
        try:
            while part := source.recv(1 << 18):
                to.sendall(part)
                if is_counted:
                    with self._lock:
                        self.received += len(part)
            to.shutdown(socket.SHUT_WR)
        except OSError:
            pass


def _listen_in(pid: int) -> socket.socket:
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/proc/{pid}/ns/net") as namespace:
        if libc.setns(namespace.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")
    return socket.create_server(("127.0.0.1", PROXY_PORT), backlog=128)


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return ""


def _cpu_seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # ended
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{command[0]} failed:\n{done.stdout[-500:]}{done.stderr[-500:]}")
