"""What the resolver says about scripts of which only the cluster knows something."""

from __future__ import annotations

import pytest

from penstock.manifests import shell


def start(script: str, program: str = "bash", **given: object) -> tuple[shell.Process, ...]:
    return shell.start((program, "-c", script), shell.Context(**given))  # type: ignore[arg-type]


def one(script: str, program: str = "bash", **given: object) -> shell.Process:
    (process,) = start(script, program, **given)
    return process


def test_a_command_substitution_keeps_its_spelling_and_is_listed() -> None:
    process = one("exec python3 -m dynamo.vllm --tp $(nvidia-smi -L | wc -l) --x 1")
    assert process.argv[3:] == ("--tp", "$(nvidia-smi -L | wc -l)", "--x", "1")
    assert process.unresolved == ("$(nvidia-smi -L | wc -l): the output of a command",)


def test_an_unknown_output_keeps_its_spelling_through_variables() -> None:
    script = """
    DEVICES="$(list-nics)"
    : "${DEVICES:?no devices}"
    export PARAMS="{\\"devices\\":\\"${DEVICES}\\"}"
    exec python3 -m dynamo.sglang
    """
    process = one(script)
    assert process.env == {"PARAMS": '{"devices":"$(list-nics)"}'}
    assert process.unresolved == ("$(list-nics): the output of a command",)


def test_an_unset_variable_keeps_its_spelling_and_is_listed() -> None:
    process = one('export PATH="/x:$PATH"; python3 -m dynamo.vllm --model $MODEL "$MODEL"')
    assert process.argv[3:] == ("--model", "$MODEL", "$MODEL")
    assert process.env == {"PATH": "/x:$PATH"}
    assert [note.partition(":")[0] for note in process.unresolved] == ["$MODEL", "$PATH"]


def test_a_value_of_a_secret_remains_a_reference() -> None:
    process = one("python3 -m dynamo.vllm --token $TOKEN", unknown={"TOKEN": "a Secret's value"})
    assert process.argv[-1] == "$TOKEN"
    assert process.unresolved == ("$TOKEN: a Secret's value",)


def test_a_default_applies_unless_image_or_operator_may_set_the_variable() -> None:
    process = one("python3 -m dynamo.vllm ${SIZE:-4} ${DYN_HTTP_PORT:-8000}")
    assert process.argv[3:] == ("4", "${DYN_HTTP_PORT:-8000}")
    assert len(process.unresolved) == 1


def test_a_guard_that_exits_is_assumed_to_pass() -> None:
    script = """
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
    process = one(script)
    assert process.argv == ("python3", "-m", "dynamo.vllm", "--model", "m")
    assert process.unresolved == ()


def test_an_argument_under_an_unknown_condition_is_not_guessed() -> None:
    script = 'a=(--x); if [ -e /dev/y ]; then a+=(--y); fi; exec python3 -m dynamo.vllm "${a[@]}"'
    process = one(script)
    assert process.argv[3:] == ("--x", "${a[@]}")
    assert process.unresolved == ("${a[@]}: depends on `[ -e /dev/y ]`",)


def test_branches_that_agree_leave_nothing_unresolved() -> None:
    script = "if curl -s x; then A=1; else A=1; fi; python3 -m dynamo.vllm $A"
    assert one(script).argv[-1] == "1"
    assert one(script).unresolved == ()


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


def test_a_loop_over_unknown_items_lists_them() -> None:
    process = one("for d in $(list); do python3 -m dynamo.vllm --d $d & done; wait")
    assert process.argv[-1] == "$(list)"
    assert "runs once for each of $(list)" in process.unresolved


def test_waiting_for_a_server_is_ignored() -> None:
    script = "until curl -sf http://x/health; do sleep 1; done\nexec python3 -m dynamo.vllm"
    assert one(script).unresolved == ()


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


def test_tools_beside_a_dynamo_process_are_ignored() -> None:
    script = "mkdir -p /x; nvidia-smi; /sbin/ldconfig\npython3 -m dynamo.vllm\necho done"
    assert one(script).argv == ("python3", "-m", "dynamo.vllm")


def test_without_a_dynamo_process_the_last_command_is_the_launch() -> None:
    assert one("mkdir /x; cd /app; python worker.py").argv == ("python", "worker.py")
    started = start("redis-server & sleep 1; exec ./serve")
    assert [process.argv for process in started] == [("redis-server",), ("./serve",)]


def test_a_script_that_only_prepares_starts_nothing() -> None:
    assert start("mkdir -p /x && cp a b; echo ready") == ()


def test_a_heredoc_is_a_file_the_process_can_read() -> None:
    script = "cat > /tmp/e.yaml <<EOF\ntp: $TP\nEOF\nexec python3 -m dynamo.trtllm"
    assert one(script, env={"TP": "4"}).files == {"/tmp/e.yaml": "tp: 4\n"}


def test_a_relative_path_starts_at_the_working_directory() -> None:
    script = "cd sub; echo '{}' > c.json; python3 -m dynamo.mocker --extra-engine-args c.json"
    process = one(script, cwd="/app")
    assert process.cwd == "/app/sub"
    assert process.files == {"/app/sub/c.json": "{}\n"}


def test_a_file_that_a_program_writes_is_unknown() -> None:
    script = (
        "cat > /e.yaml <<EOF\na: 1\nEOF\nsed -i s/1/2/ /e.yaml\npython3 -m dynamo.trtllm /e.yaml"
    )
    process = one(script)
    assert process.files == {}
    assert process.unresolved == ("/e.yaml: changed by sed",)


def test_a_file_that_contains_an_unknown_value_is_noted() -> None:
    script = "cat > /e.yaml <<EOF\na: $(nproc)\nEOF\npython3 -m dynamo.trtllm --c /e.yaml"
    assert one(script).unresolved == ("/e.yaml: contains $(nproc): the output of a command",)


def test_sh_does_not_expand_braces_and_echo_reads_escapes() -> None:
    process = one("python3 -m dynamo.vllm {a,b} \"$(echo 'x\\ny')\"", program="/bin/sh")
    assert process.argv[3:] == ("{a,b}", "x\ny")


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


def test_what_a_sourced_file_sets_is_unknown() -> None:
    process = one("source /opt/env.sh; exec python3 -m dynamo.vllm")
    assert process.unresolved == ("`source /opt/env.sh`: the script is in the image",)


def test_an_unquoted_file_pattern_is_noted() -> None:
    process = one("python3 -m dynamo.vllm --e tcp://*:5557 'tcp://*:1'")
    assert process.argv[3:] == ("--e", "tcp://*:5557", "tcp://*:1")
    assert len(process.unresolved) == 1


def test_env_without_an_environment_clears_it() -> None:
    assert one("env -i A=1 python3 -m dynamo.vllm", env={"B": "2"}).env == {"A": "1"}


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
