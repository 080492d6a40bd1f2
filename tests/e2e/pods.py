"""Run rendered Deployments and StatefulSets as processes on loopback, as a kubelet does.

Each pod has a loopback address of its own (127.0.1.N), so that containers listen on their own ports
and probes are asked as written. Services are names that are replaced by the address of a pod.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from penstock.local.ports import LOOPBACK
from tests.support import needs

INTERPRETERS = {"python3": sys.executable}  # image → interpreter
# What a network namespace does for a real pod.
BIND = (
    "DYN_TCP_RPC_HOST",
    "DYN_TCP_RESPONSE_STREAM_HOST",
    "DYN_SYSTEM_HOST",
    "DYN_EVENT_PLANE_HOST",
    "DYN_HTTP_RPC_HOST",
    "DYN_HTTP_HOST",
)
Object = Mapping[str, Any]


@dataclass
class Pod:
    name: str
    address: str
    container: Object
    grace_s: int
    process: subprocess.Popen[bytes]
    log: Path
    env: Mapping[str, str]


@dataclass
class Pods:
    """The pods of rendered manifests in ``folder``; `stop` waits for their grace period."""

    objects: tuple[Object, ...]
    folder: Path
    env: Mapping[str, str] = field(default_factory=dict)  # for every pod
    namespace: str = "default"
    pods: list[Pod] = field(default_factory=list)
    _started: Counter[str] = field(default_factory=Counter)  # by component

    def start(self, *kinds: str, components: Sequence[str] = ()) -> None:
        """``components``: only these."""
        for workload in (o for o in self.objects if o["kind"] in kinds):
            component = workload["metadata"]["labels"]["app.kubernetes.io/component"]
            if not components or component in components:
                for _ in range(int(workload["spec"]["replicas"])):
                    self._start(workload, component)

    def update(self, objects: tuple[Object, ...], delays_s: Mapping[str, float]) -> None:
        """A rolling update of the Deployments, each with one pod more than its replicas and none
        less. ``delays_s``: component → seconds until its first new pod starts."""
        self.objects = objects
        workloads = {
            o["metadata"]["labels"]["app.kubernetes.io/component"]: o
            for o in objects
            if o["kind"] == "Deployment"
        }
        old = {component: self.of(component) for component in delays_s}
        stopping: list[Pod] = []
        began = time.monotonic()
        while any(old.values()) or stopping:
            for component, remaining in old.items():
                replicas = int(workloads[component]["spec"]["replicas"])
                kept = [*remaining, *stopping]
                new = [pod for pod in self.of(component) if pod not in kept]
                may_start = time.monotonic() - began >= delays_s[component]
                if may_start and len(new) < replicas and len(new) + len(remaining) <= replicas:
                    self._start(workloads[component], component)
                ready = [pod for pod in new if not self.problem(pod, "readinessProbe")]
                if remaining and len(remaining) + len(ready) > replicas:
                    stopping.append(remaining.pop(0))
                    stopping[-1].process.terminate()
            for pod in [pod for pod in stopping if pod.process.poll() is not None]:
                stopping.remove(pod)
                self.pods.remove(pod)
            time.sleep(0.1)

    def of(self, component: str) -> list[Pod]:
        return [pod for pod in self.pods if f"-{component}-" in pod.name]

    def wait(self, probe: str, timeout_s: float = 120) -> None:
        deadline = time.monotonic() + timeout_s
        waiting = list(self.pods)
        while waiting := [pod for pod in waiting if self.problem(pod, probe)]:
            for pod in waiting:
                code = pod.process.poll()
                assert code is None, (
                    f"{pod.name} exited with {code}:\n{pod.log.read_text()[-3000:]}"
                )
            assert time.monotonic() < deadline, f"no {probe}: {[pod.name for pod in waiting]}"
            time.sleep(0.1)

    def problem(self, pod: Pod, probe: str) -> str:
        """Why a probe of the pod fails; "" if it succeeds."""
        check = pod.container[probe]
        if "exec" in check:
            argv = [self._of(part, pod) for part in check["exec"]["command"]]
            argv[0] = INTERPRETERS[argv[0]]
            done = subprocess.run(
                argv,
                env=dict(pod.env),
                capture_output=True,
                text=True,
                timeout=check["timeoutSeconds"],
                check=False,
            )
            return done.stderr if done.returncode else ""
        ports = {port["name"]: port["containerPort"] for port in pod.container["ports"]}
        url = f"http://{pod.address}:{ports[check['httpGet']['port']]}{check['httpGet']['path']}"
        try:
            response = httpx.get(url, timeout=5, trust_env=False, verify=False)
        except httpx.HTTPError as error:
            return repr(error)
        return "" if response.is_success else f"HTTP {response.status_code}"

    def _of(self, text: str, pod: Pod) -> str:
        """A part of the pod's command, where its loopback is its address."""
        return self.resolve(f"//{text}").removeprefix("//").replace(LOOPBACK, pod.address)

    def stop(self) -> dict[str, int]:
        """Send SIGTERM to all pods except etcd, then to etcd; return the exit code of each pod."""
        codes = {}
        for last in (False, True):
            group = [pod for pod in self.pods if (pod.container["name"] == "etcd") is last]
            for pod in group:
                pod.process.send_signal(signal.SIGTERM)
            for pod in group:
                try:
                    codes[pod.name] = pod.process.wait(pod.grace_s)
                except subprocess.TimeoutExpired:
                    pod.process.kill()
                    codes[pod.name] = pod.process.wait()
        self.pods.clear()
        return codes

    def command(self, container: Object, name: str) -> list[str]:
        """argv of a container, with its program and its volumes on this machine."""
        program, *rest = [*container["command"], *container.get("args", ())]
        found = INTERPRETERS.get(program) or needs.program(program)
        return [found, *(self._here(part, name) for part in rest)]

    def resolve(self, text: str) -> str:
        """Replace names of Services by the address of their first pod."""
        for service in (o for o in self.objects if o["kind"] == "Service"):
            expected = service["spec"]["selector"]["penstock/component"]
            address = next((pod.address for pod in self.of(expected)), None)
            if address:
                pattern = rf"(?<=//)([a-z0-9-]+\.)?{re.escape(service['metadata']['name'])}(?=:)"
                text = re.sub(pattern, address, text)
        return text

    def _start(self, workload: Object, component: str) -> None:
        address = f"127.0.1.{self._started.total() + 1}"
        name = f"{workload['metadata']['name']}-{self._started[component]}"
        self._started[component] += 1
        spec = workload["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        self._mount(spec, container, name)
        env = self._environment(container, name, address)
        log = self.folder / f"{name}.log"
        grace_s = spec.get("terminationGracePeriodSeconds", 30)
        pod = Pod(name, address, container, grace_s, None, log, env)  # type: ignore[arg-type]
        self.pods.append(pod)  # first: a member of etcd names itself
        argv = [self._expand(part, env, address) for part in self.command(container, name)]
        pod.process = subprocess.Popen(
            argv, env=env, stdout=log.open("wb"), stderr=subprocess.STDOUT, cwd=self.folder
        )

    def _mount(self, spec: Object, container: Object, name: str) -> None:
        """The files of ConfigMaps; other volumes are folders."""
        volumes = {volume["name"]: volume for volume in spec.get("volumes", ())}
        for mount in container.get("volumeMounts", ()):
            target = self.folder / name / mount["mountPath"].lstrip("/")
            target.mkdir(parents=True, exist_ok=True)
            source = volumes.get(mount["name"], {}).get("configMap")
            if source:
                (found,) = (o for o in self.objects if o["metadata"]["name"] == source["name"])
                for file, text in found["data"].items():
                    (target / file).write_text(text)

    def _here(self, text: str, name: str) -> str:
        """Replace paths of mounted files by those on this machine."""
        root = self.folder / name
        return re.sub(r"(?<![\w/])/(etc/penstock|var/lib/etcd)", rf"{root}/\1", text)

    def _environment(self, container: Object, name: str, address: str) -> dict[str, str]:
        fields = {
            "metadata.name": name,
            "metadata.namespace": self.namespace,
            "metadata.uid": name,
            "status.podIP": address,
        }
        env = {key: os.environ[key] for key in ("PATH", "LANG") if key in os.environ}
        temporary = self.folder / name / "tmp"
        temporary.mkdir(parents=True)
        env |= {"HOME": str(self.folder), "TMPDIR": str(temporary), "HF_HUB_OFFLINE": "1"}
        env |= dict.fromkeys(BIND, address)
        env |= self.env
        for variable in container.get("env", ()):
            source = variable.get("valueFrom")
            value = fields[source["fieldRef"]["fieldPath"]] if source else variable["value"]
            env[variable["name"]] = self.resolve(value)
        return env

    def _expand(self, text: str, env: Mapping[str, str], address: str) -> str:
        """Expand `$(NAME)` and names of Services; replace 0.0.0.0 by the pod's address."""
        text = re.sub(r"\$\((\w+)\)", lambda match: env[match[1]], text)
        return self.resolve(text).replace("//0.0.0.0:", f"//{address}:")
