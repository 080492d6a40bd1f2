"""The static reading of a script against what the real bash does with it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from tests.manifests import bash_runner, grammar

pytestmark = pytest.mark.program

ENV = {"MODEL": "openai/gpt-oss-120b", "SPACED": "a  b c", "EMPTY": "", "N": "3"}

SCRIPTS = {
    "plain": "python3 -m dynamo.vllm --model $MODEL",
    "exec": "exec python3 -m dynamo.vllm --x",
    "nothing after exec runs": "exec python3 -m dynamo.a; python3 -m dynamo.b",
    "quotes": """python3 -m dynamo.vllm 'a b' "c $MODEL d" e\\ f "" '' "\\$x \\"q\\" \\\\ \\n" """,
    "single quotes inside double": """python3 -m dynamo.vllm "it's $N" 'say "hi"' a'b'"c"$N""",
    "splitting": 'python3 -m dynamo.vllm $SPACED "$SPACED" x$SPACED"y" $EMPTY "$EMPTY" $EMPTY$N',
    "continuation": "python3 -m dynamo.vllm \\\n  --a 1 \\\n  --b '{\"k\": [1,\n 2]}' \\\n  --c",
    "assignment": "A=1\nB=$A$A\npython3 -m dynamo.vllm $A $B",
    "two assignments on a line, then a line": "A=1 B=2\npython3 -m dynamo.vllm $A $B",
    "two assignments on a line, then export": "A=1 B=2\nexport C=$A\npython3 -m dynamo.vllm $B",
    "assignment does not split": 'A=$SPACED; python3 -m dynamo.vllm "$A" $A',
    "export": 'export A=1 B="x y"; C=3; export C; D=4; python3 -m dynamo.vllm',
    "export does not split": "export A=$SPACED; python3 -m dynamo.vllm",
    "export -n": "export A=1; export -n A; python3 -m dynamo.vllm",
    "declare -x": "declare -x A=1; readonly B=2; python3 -m dynamo.vllm $A $B",
    "prefix": "A=1 B=$A python3 -m dynamo.vllm; python3 -m dynamo.vllm again",
    "prefix is not seen by the words": "A=0; A=1 python3 -m dynamo.vllm $A",
    "env": "env -u N A=1 B='x y' python3 -m dynamo.vllm --a",
    "nohup and command": "nohup python3 -m dynamo.vllm a; command python3 -m dynamo.vllm b",
    "default": 'python3 -m dynamo.vllm ${NOPE:-d} ${EMPTY:-e} ${EMPTY-f} ${N:-g} "${NOPE:-a b}"',
    "default splits": "python3 -m dynamo.vllm ${NOPE:-a b} ${NOPE:-'c d' e} ${NOPE:-$SPACED}",
    "default in quotes": """python3 -m dynamo.vllm "${NOPE:-'a' "quoted" $N}" "${NOPE:-{\\"a\\":1}}" """,
    "default of default": "python3 -m dynamo.vllm ${NOPE:-${ALSO:-$N}} ${NOPE:-${N:-x}}",
    "assigning default": "python3 -m dynamo.vllm ${A:=x} $A; python3 -m dynamo.vllm $A",
    "alternative": 'python3 -m dynamo.vllm ${N:+--n $N} ${NOPE:+--nope} "${N:+--q $N}" ${EMPTY:+e}',
    "required": "python3 -m dynamo.vllm ${N:?must be set} ${MODEL:?}",
    "length": "python3 -m dynamo.vllm ${#MODEL} ${#EMPTY}; A=(1 2 3); python3 -m dynamo.a ${#A[@]}",
    "removal": "python3 -m dynamo.vllm ${MODEL#*/} ${MODEL##*-} ${MODEL%-*} ${MODEL%%-*} ${MODEL%/*}",
    "replacement": "python3 -m dynamo.vllm ${MODEL/-/_} ${MODEL//-/_} ${MODEL//\\//--} ${MODEL/#o/X}",
    "case": "A=aBc; python3 -m dynamo.vllm ${A^^} ${A,,} ${A^}",
    "substring": "python3 -m dynamo.vllm ${MODEL:0:6} ${MODEL:7} ${MODEL: -4} ${MODEL:1:-2}",
    "indirect": "A=N; python3 -m dynamo.vllm ${!A}",
    "array": 'a=(--x "b c" $SPACED); python3 -m dynamo.vllm "${a[@]}" ${a[@]} "${a[*]}" ${a[1]} $a',
    "array grows": 'a=(--x)\na+=(--y "z w")\na+=()\npython3 -m dynamo.vllm "${a[@]}"',
    "array over lines": 'a=(\n  --x 1 # comment\n  --y "2 3"\n)\npython3 -m dynamo.vllm "${a[@]}"',
    "empty array": 'a=(); python3 -m dynamo.vllm "${a[@]}" x "${a[*]}"',
    "array glued": 'a=(1 2); python3 -m dynamo.vllm "p${a[@]}s" x${a[@]}y',
    "array item": "a[2]=z; a[0]=x; python3 -m dynamo.vllm ${a[@]}; b=2; python3 -m dynamo.b ${a[b]}",
    "array keys": 'a=(x y); for i in "${!a[@]}"; do python3 -m dynamo.vllm $i ${a[$i]}; done',
    "array append string": 'a=x; a+=y; a+=" z"; python3 -m dynamo.vllm "$a"',
    "array slice of a default": 'python3 -m dynamo.vllm "${a[@]:-none}"',
    "positional": 'set -- a \'b c\'; python3 -m dynamo.vllm $# "$@" $* "$*" $1 "$2"; shift; python3 -m dynamo.b $1',
    "no positional": 'python3 -m dynamo.vllm "$@" $# "x$@"',
    "arithmetic": "A=5; python3 -m dynamo.vllm $((A*2+1)) $(( $N - 1 )) $((7/2)) $((-7/2)) $((7%4)) $((2**8))",
    "arithmetic more": "python3 -m dynamo.vllm $((1<2)) $((N>2&&0)) $((N==3?10:20)) $((0x1f)) $((1<<4)) $((~0))",
    "arithmetic assigns": "i=0; ((i+=2)); ((i++)); let i=i*2; python3 -m dynamo.vllm $i $((i++)) $i",
    "for": "for i in 1 2 'x y'; do python3 -m dynamo.vllm --i $i; done",
    "for over a range": "for i in {0..3}; do python3 -m dynamo.vllm --port $((8000+i)); done",
    "for over seq": "for i in $(seq 0 $((N-1))); do python3 -m dynamo.vllm $i & done; wait",
    "for over array": 'a=(x "y z"); for i in "${a[@]}"; do python3 -m dynamo.vllm "$i"; done',
    "c for": "for ((i=0; i<3; i++)); do python3 -m dynamo.vllm $i & done; wait",
    "while counter": "i=0; while [ $i -lt 3 ]; do python3 -m dynamo.vllm $i & i=$((i+1)); done; wait",
    "until": "i=3; until [ $i -eq 0 ]; do python3 -m dynamo.vllm $i; ((i--)); done",
    "break and continue": "for i in 1 2 3 4; do [ $i = 2 ] && continue; [ $i = 4 ] && break; python3 -m dynamo.vllm $i; done",
    "if": 'if [ "$N" -eq 3 ]; then A=yes; else A=no; fi; python3 -m dynamo.vllm $A',
    "elif": "if [ $N = 1 ]; then A=1; elif [ $N = 3 ]; then A=3; else A=0; fi; python3 -m dynamo.vllm $A",
    "test forms": 'for t in a; do [ -n "$N" ] && python3 -m dynamo.a; [ -z "$EMPTY" ] && python3 -m dynamo.b; test "$N" != 4 && python3 -m dynamo.c; [ ! "$EMPTY" ] && python3 -m dynamo.d; done',
    "double bracket": "[[ $MODEL == openai/* && $N -gt 2 ]] && python3 -m dynamo.a; [[ $MODEL =~ oss-([0-9]+)b ]] && python3 -m dynamo.b; [[ -z $EMPTY || $N < 1 ]] && python3 -m dynamo.c; [[ ! $N == 4 ]] && python3 -m dynamo.d",
    "case statement": 'case "$MODEL" in meta/*) A=1;; openai/*|x) A=2;; *) A=3;; esac; python3 -m dynamo.vllm $A',
    "and or": "true && python3 -m dynamo.a || python3 -m dynamo.b; false && python3 -m dynamo.c || python3 -m dynamo.d",
    "group": "{ A=1; python3 -m dynamo.a; } && python3 -m dynamo.b $A",
    "subshell": "A=1; (A=2; cd /tmp; export B=3; python3 -m dynamo.a $A); python3 -m dynamo.b $A",
    "background": "python3 -m dynamo.a & python3 -m dynamo.b --x &\nwait",
    "background keeps variables apart": "A=1; { A=2; python3 -m dynamo.a $A; } & wait; python3 -m dynamo.b $A",
    "function": 'run() { python3 -m dynamo.vllm --port "$1" "${@:2}" $#; }; run 80; run 81',
    "function with local": "f() { local A=$1; A=$A$A; python3 -m dynamo.vllm $A; }; A=x; f y; python3 -m dynamo.b $A",
    "function keyword": "function f { python3 -m dynamo.vllm $1; return 0; python3 -m dynamo.no; }; f a",
    "heredoc to a file and cat": 'cat > f.txt <<EOF\na $N\n  b\nEOF\npython3 -m dynamo.vllm "$(cat f.txt)"',
    "quoted heredoc": "cat <<'EOF' > f.txt\n$N `x` \\$y\nEOF\npython3 -m dynamo.vllm \"$(cat f.txt)\"",
    "heredoc with tabs": 'cat > f.txt <<-EOF\n\t\tx: $N\n\ty\n\tEOF\npython3 -m dynamo.vllm "$(cat f.txt)"',
    "heredoc then more": 'cat > f.txt <<EOF && A=2\nx\nEOF\npython3 -m dynamo.vllm "$(cat f.txt)" $A',
    "heredoc to tee": 'cat <<EOF | tee f.txt > /dev/null\nx $N\nEOF\npython3 -m dynamo.vllm "$(cat f.txt)"',
    "tee heredoc": 'tee f.txt <<EOF >/dev/null\n{"a": "$N"}\nEOF\npython3 -m dynamo.vllm "$(< f.txt)"',
    "heredoc in a substitution": 'A=$(cat <<\'EOF\'\n{"a": "$N"}\nEOF\n)\npython3 -m dynamo.vllm "$A"',
    "heredoc expansion rules": 'cat > f <<EOF\n"q" \\$N \\\\ \'s\' $((1+1)) ${N} \\n\nEOF\npython3 -m dynamo.vllm "$(cat f)"',
    "echo to a file": "echo a $N > f; echo b >> f; printf '%s-%d\\n' x 3 >> f; python3 -m dynamo.vllm \"$(cat f)\"",
    "copy": "echo a > f; cp f g; python3 -m dynamo.vllm $(cat g)",
    "herestring": 'A="$(cat <<< "x $N")"; python3 -m dynamo.vllm "$A"',
    "pure substitutions": 'python3 -m dynamo.vllm $(echo a b) "$(printf "%s," 1 2)" $(basename /a/b.yaml .yaml) $(dirname /a/b) `echo old $N`',
    "braces": "python3 -m dynamo.vllm {a,b}{1,2} x{0..2}y {01..03} '{a,b}' \"{a,b}\" {a} a{b,}c {5..1..2} {a..c}",
    "ansi": "python3 -m dynamo.vllm $'a\\nb\\t\\x41' $\"x $N\"",
    "dollar alone": 'python3 -m dynamo.vllm $ "$" a$ "a$ b" $% "100$"',
    "comments": "# first\npython3 -m dynamo.vllm a # b\n# last",
    "hash in a word": "python3 -m dynamo.vllm a#b '#c' \"#d\"",
    "redirects": "python3 -m dynamo.vllm a > out.log 2>&1 b; python3 -m dynamo.b < /dev/null 2>/dev/null; python3 -m dynamo.c &> all",
    "pipe": "python3 -m dynamo.vllm a 2>&1 | tee log",
    "cd": "mkdir -p sub && cd sub; python3 -m dynamo.vllm",
    "cd absolute": "cd /tmp && python3 -m dynamo.vllm",
    "set options": "set -Eeuo pipefail\nset -x\nulimit -n 1024 || true\npython3 -m dynamo.vllm",
    "set -a": "set -a; A=1; set +a; B=2; python3 -m dynamo.vllm",
    "unset": "unset N; python3 -m dynamo.vllm x${N}y ${N:-none}",
    "eval": 'CMD=\'python3 -m dynamo.vllm "a b"\'; eval $CMD; eval "$CMD --x"',
    "command in a variable": "CMD='python3 -m dynamo.vllm'; $CMD --x; exec $CMD --y",
    "nested shell": "A=1; export B=2; bash -c 'python3 -m dynamo.vllm $A $B $0 $1' zero one",
    "exit": "python3 -m dynamo.a; exit 0; python3 -m dynamo.b",
    "guard": '[ "$N" -ne 3 ] && { echo bad; exit 1; }; python3 -m dynamo.a',
    "colon": ': "${N:?x}" "${A:=5}"; python3 -m dynamo.vllm $A',
    "trap": "trap 'echo bye' EXIT; python3 -m dynamo.vllm",
    "last of the args": "python3 -m dynamo.vllm --a --b=$N --c=\"$SPACED\" --d='x'y",
    "tilde": 'HOME=/h; python3 -m dynamo.vllm ~/x a~ "~"',
    "equals words": "python3 -m dynamo.vllm A=1 --x={1,2} B='2 3'",
    "semicolons in quotes": "python3 -m dynamo.vllm 'a;b' \"c&d\" e\\;f '|'",
    "not": "! false && python3 -m dynamo.a; if ! [ $N = 3 ]; then python3 -m dynamo.b; fi",
    "nested quotes in substitution": 'python3 -m dynamo.vllm "$(echo "a b" \'c\')" "$(echo "$(echo x)")"',
    "json with unquoted braces": 'python3 -m dynamo.vllm {"a":1} --x={"k":"v"} "{\\"a\\":$N}"',
    "export from an array": 'a=(1 2); export J="${a[*]}"; python3 -m dynamo.vllm',
    "joining by hand": 'P=""; for i in 1 2 3; do P="${P:+$P,}$i"; done; python3 -m dynamo.vllm "$P"',
    "ports in an array": 'p=(); for i in {0..2}; do p+=("--port" "$((9000 + i))"); done; python3 -m dynamo.vllm "${p[@]}"',
    "devices each": "for g in 0 1; do CUDA_VISIBLE_DEVICES=$g DYN_SYSTEM_PORT=$((8081+g)) python3 -m dynamo.vllm --gpu $g & done; wait",
    "if with else in lines": 'if [ -z "$EMPTY" ]\nthen\n  A=1\nelse\n  A=2\nfi\npython3 -m dynamo.vllm $A',
    "multi line and": "true &&\n  python3 -m dynamo.vllm a ||\n  python3 -m dynamo.vllm b",
    "while true once": "while true; do python3 -m dynamo.vllm; break; done",
    "nested function calls": 'g() { python3 -m dynamo.vllm "$1"; }; f() { g "$1-$2"; }; f a b',
    "local array": 'f() { local -a a=(--x "$1"); a+=("$2"); python3 -m dynamo.vllm "${a[@]}"; }; f 1 "2 3"',
    "IFS": "L=a,b,,c,; S='x  y'; IFS=,; python3 -m dynamo.vllm $L \"$L\" $S ${L}z; IFS=; python3 -m dynamo.b $S",
    "IFS joins": 'a=(1 2 3); IFS=,; J="${a[*]}"; unset IFS; python3 -m dynamo.vllm "$J" $J; (IFS=-; python3 -m dynamo.b "${a[*]}")',
    "comment between": "A=1 B=2 # c\nwhile false; do b; done\nexec python3 -m dynamo.vllm $A",
    "process substitution behind": "python3 -m dynamo.vllm --x > >(cat >/dev/null) 2>&1",
    "blank at the end": "python3 -m dynamo.vllm \\ \npython3 -m dynamo.b a\\ ",
    "printf -v": "printf -v A '%s' x; python3 -m dynamo.vllm $A",
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_resolver_starts_what_bash_starts(name: str, tmp_path: Path) -> None:
    script = SCRIPTS[name]
    assert bash_runner.resolved(script, ENV, tmp_path) == bash_runner.really(script, ENV, tmp_path)


@settings(
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(script=grammar.scripts())
def test_any_script_without_unknowns_starts_what_bash_starts(script: str, tmp_path: Path) -> None:
    resolved = bash_runner.resolved(script, ENV, tmp_path)
    assert resolved == bash_runner.really(script, ENV, tmp_path)
