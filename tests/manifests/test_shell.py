"""What the resolver says about scripts of which only the cluster knows something."""

from __future__ import annotations

import re

import pytest

from penstock.manifests import shell
from penstock.manifests.deployment import Launch


def start(script: str, program: str = "bash", **context: object) -> tuple[Launch, ...]:
    return shell.start((program, "-c", script), shell.Context(**context))  # type: ignore[arg-type]


def only(script: str, program: str = "bash", **context: object) -> Launch:
    (process,) = start(script, program, **context)
    return process


GUARDS = """
    count="$(nvidia-smi -L | grep -c GPU)"
    if [ "${count}" -ne 8 ]; then
      echo "wrong number of GPUs"; exit 96
    fi
    test -r "$MODEL/config.json" || { echo missing; exit 42; }
    [ -d /dev/infiniband ] || exit 1
    [[ -f /bad ]] && exit 1
    command -v nvidia-smi >/dev/null || exit 1
    exec python3 -m dynamo.vllm --model m
    """
# What the scripts show → the script, with ENGINE for the program; its arguments, and its notes.
CASES: dict[str, tuple[str, list[str], list[str]]] = {
    "a command substitution keeps its spelling and is listed": (
        "exec ENGINE --tp $(nvidia-smi -L | wc -l) --x 1",
        ["--tp", "$(nvidia-smi -L | wc -l)", "--x", "1"],
        ["$(nvidia-smi -L | wc -l): the output of a command"],
    ),
    "an argument under an unknown condition is not guessed": (
        'a=(--x); if [ -e /dev/y ]; then a+=(--y); fi; exec ENGINE "${a[@]}"',
        ["--x", "${a[@]}"],
        ["${a[@]}: depends on `[ -e /dev/y ]`"],
    ),
    "branches that agree leave nothing unresolved": (
        "if curl -s x; then A=1; else A=1; fi; ENGINE $A",
        ["1"],
        [],
    ),
    "guards that exit are assumed to pass": (GUARDS, ["--model", "m"], []),
    "waiting for a server is ignored": (
        "until curl -sf http://x/health; do sleep 1; done\nexec ENGINE",
        [],
        [],
    ),
    "tools before and after the process are ignored": (
        "mkdir -p /x; nvidia-smi; /sbin/ldconfig\nENGINE\necho done",
        [],
        [],
    ),
    "a file that a program writes is unknown": (
        "cat > /e.yaml <<EOF\na: 1\nEOF\nsed -i s/1/2/ /e.yaml\nENGINE /e.yaml",
        ["/e.yaml"],
        ["/e.yaml: changed by sed"],
    ),
    "a file with an unknown value is noted": (
        "cat > /e.yaml <<EOF\na: $(nproc)\nEOF\nENGINE --c /e.yaml",
        ["--c", "/e.yaml"],
        ["/e.yaml: contains $(nproc): the output of a command"],
    ),
    "what a sourced file sets is unknown": (
        "source /opt/env.sh; exec ENGINE",
        [],
        ["`source /opt/env.sh`: the script is in the image"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_script_starts_one_process_with_these_arguments_and_notes(name: str) -> None:
    script, arguments, notes = CASES[name]
    process = only(script.replace("ENGINE", "python3 -m dynamo.vllm"))
    assert process.argv[:3] == ("python3", "-m", "dynamo.vllm")
    assert [*process.argv[3:]] == arguments
    assert [*process.unresolved] == notes


# Script → its arguments and the names in its notes.
@pytest.mark.parametrize(
    ("script", "arguments", "noted"),
    [
        ('export PATH="/x:$PATH"; E --model $M "$M"', ["--model", "$M", "$M"], ["$M", "$PATH"]),
        ("E ${SIZE:-4} ${DYN_HTTP_PORT:-8}", ["4", "${DYN_HTTP_PORT:-8}"], ["${DYN_HTTP_PORT"]),
        ("E --e tcp://*:5557 'tcp://*:1'", ["--e", "tcp://*:5557", "tcp://*:1"], ["tcp"]),
        (
            "for d in $(list); do E --d $d & done; wait",
            ["--d", "$(list)"],
            ["$(list)", "runs once"],
        ),
    ],
)
def test_what_is_unset_or_unknown_keeps_its_spelling_and_is_noted(
    script: str, arguments: list[str], noted: list[str]
) -> None:
    process = only(re.sub(r"\bE\b", "python3 -m dynamo.vllm", script))
    assert [*process.argv[3:]] == arguments
    notes = sorted(process.unresolved)
    assert len(notes) == len(noted)
    assert all(note.startswith(name) for note, name in zip(notes, sorted(noted), strict=True))


def test_variables_and_files_of_the_process_are_known() -> None:
    script = (
        'X="$(list-nics)"; : "${X:?no}"; export P="{\\"d\\":\\"${X}\\"}"; python3 -m dynamo.vllm'
    )
    process = only(script)
    assert process.env == {"P": '{"d":"$(list-nics)"}'}
    assert process.unresolved == ("$(list-nics): the output of a command",)
    process = only("python3 -m dynamo.vllm $TOKEN", unknown={"TOKEN": "a Secret's value"})
    assert (process.argv[-1], process.unresolved) == ("$TOKEN", ("$TOKEN: a Secret's value",))
    assert only("env -i A=1 python3 -m dynamo.vllm", env={"B": "2"}).env == {"A": "1"}
    script = "cat > /tmp/e.yaml <<EOF\ntp: $TP\nEOF\nexec python3 -m dynamo.trtllm"
    assert only(script, env={"TP": "4"}).files == {"/tmp/e.yaml": "tp: 4\n"}
    script = "cd sub; echo '{}' > c.json; python3 -m dynamo.mocker --extra-engine-args c.json"
    process = only(script, cwd="/app")
    assert (process.cwd, process.files) == ("/app/sub", {"/app/sub/c.json": "{}\n"})
    process = only("python3 -m dynamo.vllm {a,b} \"$(echo 'x\\ny')\"", program="/bin/sh")
    assert process.argv[3:] == ("{a,b}", "x\ny")


def test_processes_of_both_branches_are_listed_with_the_condition() -> None:
    script = """
    if [ "$(hostname)" = leader ]; then exec python3 -m dynamo.vllm --leader
    else exec python3 -m dynamo.vllm --worker; fi
    """
    leader, worker = start(script)
    assert leader.argv[-1] == "--leader"
    assert worker.argv[-1] == "--worker"
    note = 'runs depending on `[ "$(hostname)" = leader ]`'
    assert leader.unresolved == worker.unresolved == (note,)


def test_a_loop_that_restarts_the_process_starts_it_once() -> None:
    assert len(start("while true; do python3 -m dynamo.vllm; sleep 5; done")) == 1


def test_several_engines_in_one_pod_are_several_processes() -> None:
    script = """
    python3 -m dynamo.frontend --http-port 8000 &
    for i in $(seq 0 1); do
      CUDA_VISIBLE_DEVICES=$i python3 -m dynamo.vllm --port $((9000 + i)) &
    done
    wait -n
    """
    frontend, first, second = start(script)
    assert frontend.argv[2:] == ("dynamo.frontend", "--http-port", "8000")
    assert (first.argv[-1], first.env["CUDA_VISIBLE_DEVICES"]) == ("9000", "0")
    assert (second.argv[-1], second.env["CUDA_VISIBLE_DEVICES"]) == ("9001", "1")


def test_without_a_dynamo_process_the_last_command_is_the_launch() -> None:
    assert only("mkdir /x; cd /app; python worker.py").argv == ("python", "worker.py")
    started = start("redis-server & sleep 1; exec ./serve")
    assert [process.argv for process in started] == [("redis-server",), ("./serve",)]


def test_a_script_that_only_prepares_starts_nothing() -> None:
    assert start("mkdir -p /x && cp a b; echo ready") == ()


def test_a_script_from_a_configmap_is_followed() -> None:
    files = {"/scripts/run.sh": '#!/bin/bash\nexec python3 -m dynamo.vllm --port "$1"\n'}
    surroundings = shell.Context(files=files)
    for argv in (("bash", "/scripts/run.sh", "80"), ("/scripts/run.sh", "80")):
        (process,) = shell.start(argv, surroundings)
        assert process.argv == ("python3", "-m", "dynamo.vllm", "--port", "80")


def test_a_script_of_the_image_is_noted() -> None:
    (process,) = shell.start(("bash", "/opt/run.sh"), shell.Context())
    assert process.argv == ("bash", "/opt/run.sh")
    assert process.unresolved == ("`bash /opt/run.sh`: the script is in the image",)


def test_a_script_that_bash_cannot_parse_is_an_error() -> None:
    for script in ("if true; then x", "echo 'a", "python3 )", "a && && b", "case x in"):
        with pytest.raises(shell.UnknownError):
            start(script)


@pytest.mark.parametrize(
    "script",
    [
        "while true; do A=$A$A; done; python3 -m dynamo.vllm",
        "A=xx; for ((;;)); do A=$A$A; done; python3 -m dynamo.vllm $A",
        "f() { f; }; f; python3 -m dynamo.vllm",
        "f() { f & f; }; f; python3 -m dynamo.vllm",
        'X=\'eval "$X"\'; eval "$X"; python3 -m dynamo.vllm',
        "python3 -m dynamo.vllm {1..99}{1..99}{1..99}{1..99}",
        "python3 -m dynamo.vllm {1..999999999}",
        "python3 -m dynamo.vllm $((2**64**64)) $((1/0))",
        "A=1; until false; do :; done; python3 -m dynamo.vllm",
    ],
)
def test_endless_scripts_are_cut_off(script: str) -> None:
    try:
        processes = start(script)
    except shell.UnknownError:
        return
    assert all(process.unresolved for process in processes)
