"""A small grammar of shell scripts in which nothing is unknown, for the comparison with bash.

Words hold no unquoted `*`, `?` or `[`: the shell would compare those with file names.
"""

from __future__ import annotations

from hypothesis import strategies as st

NAMES = ["A", "B", "MODEL", "SPACED", "EMPTY", "N"]
START = "A=a; B='b  c'; X=(x 'y z'); Y=()\n"
END = "\nexec python3 -m dynamo.vllm --last $A"
_ODD = "ab1 ;&|<>(){}#~'-\n"


@st.composite
def scripts(draw: st.DrawFn) -> str:
    body = draw(st.lists(statements(2), min_size=1, max_size=5))
    return START + "\n".join(body) + END


@st.composite
def statements(draw: st.DrawFn, depth: int) -> str:
    kinds = ["launch", "assign", "prefixed"]
    if depth:
        kinds += ["if", "for", "c for", "background", "function", "and", "case", "while"]
    kind = draw(st.sampled_from(kinds))
    if kind == "launch":
        return draw(launches())
    if kind == "assign":
        return draw(assignments())
    if kind == "prefixed":
        return f"A={draw(words())} {draw(launches())}"
    return draw(blocks(kind, depth - 1))


@st.composite
def blocks(draw: st.DrawFn, kind: str, depth: int) -> str:
    body = "\n".join(draw(st.lists(statements(depth), min_size=1, max_size=2)))
    if kind == "if":
        return f"if {draw(tests())}; then\n{body}\nelse\n{draw(statements(depth))}\nfi"
    if kind == "for":
        return f"for A in {draw(arguments())}; do\n{body}\ndone"
    if kind == "c for":
        return f"for ((I{depth} = 0; I{depth} < 2; I{depth}++)); do\n{body}\ndone"
    if kind == "background":
        return f"{{ {body}\n}} &\nwait"
    if kind == "function":
        return f"f{depth}() {{\nlocal B=$1\n{body}\n}}\nf{depth} {draw(arguments())}"
    if kind == "and":
        return f"{draw(tests())} && {{ {body}\n}}"
    if kind == "while":
        return f"W{depth}=0; while [ $W{depth} -lt 2 ]; do W{depth}=$((W{depth}+1))\n{body}\ndone"
    pattern = draw(st.sampled_from(["a*|b", "''", "*-*", "[0-9]*", '"$A"']))
    return f"case {draw(words())}x in {pattern}) {body}\n;; *) {draw(launches())}\n;; esac"


@st.composite
def launches(draw: st.DrawFn) -> str:
    return f"python3 -m dynamo.vllm {draw(arguments())}"


@st.composite
def arguments(draw: st.DrawFn) -> str:
    return " ".join(draw(st.lists(words(), max_size=3)))


@st.composite
def assignments(draw: st.DrawFn) -> str:
    operator = draw(st.sampled_from(["=", "+="]))
    kind = draw(st.sampled_from(["plain", "array", "export", "other", "heredoc"]))
    if kind == "plain":
        return f"{draw(st.sampled_from('AB'))}{operator}{draw(words())}"
    if kind == "array":
        return f"{draw(st.sampled_from('XY'))}{operator}({draw(arguments())})"
    if kind == "export":
        return f"export {draw(st.sampled_from('AB'))}={draw(words())}"
    if kind == "heredoc":
        text = draw(st.text("ab $}\"'\\\n", max_size=8)).replace("$", "${N}") + "."
        return f"cat > h.txt <<E\n{text}\nE\nB=$(cat h.txt)"
    return draw(
        st.sampled_from(
            ["export A", "((N += 1))", "N=$((N + 1))", "unset B", "X[1]=z", "A=1 B=2 # c", "A="]
        )
    )


@st.composite
def words(draw: st.DrawFn) -> str:
    return "".join(draw(st.lists(parts(), min_size=1, max_size=3)))


@st.composite
def parts(draw: st.DrawFn) -> str:
    kind = draw(st.sampled_from(["plain", "single", "double", "expansion", "escape"]))
    if kind == "plain":
        return draw(st.text("abc019-_./:,+@%", min_size=1, max_size=5))
    if kind == "single":
        return "'" + draw(st.text(_ODD.replace("'", "") + '"$\\', max_size=6)) + "'"
    if kind == "double":
        return draw(doubles())
    if kind == "expansion":
        return draw(expansions())
    return draw(st.sampled_from(["\\ ", "\\$", '\\"', "\\\\", "\\\n", "\\a"]))


@st.composite
def doubles(draw: st.DrawFn) -> str:
    inner = st.one_of(
        st.text(_ODD, max_size=6),
        expansions(),
        st.sampled_from(["${X[@]}", "${Y[@]}", '\\"', "\\$", "\\n"]),
    )
    return '"' + "".join(draw(st.lists(inner, max_size=3))) + '"'


@st.composite
def expansions(draw: st.DrawFn) -> str:
    name = draw(st.sampled_from(NAMES))
    kind = draw(st.sampled_from(["bare", "braced", "default", "removal", "number", "fixed"]))
    if kind == "bare":
        return f"${{{name}}}" if draw(st.booleans()) else f'${name}""'
    if kind == "default":
        operator = draw(st.sampled_from([":-", "-", ":+", "+"]))
        return f"${{{name}{operator}{draw(st.sampled_from(['x', 'y z', '$N', '{', '']))}}}"
    if kind == "removal":
        operator = draw(st.sampled_from(["#", "##", "%", "%%", "//", "/"]))
        return f"${{{name}{operator}{draw(st.sampled_from(['a', '*-', 'o', '?']))}}}"
    if kind == "number":
        operator = draw(st.sampled_from(["+", "-", "*", "/", "%", "<", "==", "&&", "<<"]))
        return f"$((N {operator} {draw(st.sampled_from(['1', '3', 'N', '(N+2)']))}))"
    if kind == "fixed":
        fixed = ["$(echo x  y)", "$(seq 1 3)", "$(printf '%s' a)", "${X[1]}", "${#Y[@]}", "${X[*]}"]
        return draw(st.sampled_from([*fixed, "`echo q`", "${#MODEL}", "${MODEL:2:3}", "${X[@]:1}"]))
    return f"${{{name}}}"


@st.composite
def tests(draw: st.DrawFn) -> str:
    kind = draw(st.sampled_from(["equal", "number", "pattern", "fixed"]))
    if kind == "equal":
        operator = draw(st.sampled_from(["=", "!="]))
        return f"[ {draw(doubles_of_one())} {operator} {draw(doubles_of_one())} ]"
    if kind == "number":
        operator = draw(st.sampled_from(["-lt", "-eq", "-ge"]))
        return f'[ "$N" {operator} {draw(st.integers(0, 5))} ]'
    if kind == "pattern":
        return (
            f"[[ ${draw(st.sampled_from(NAMES))} == {draw(st.sampled_from(['a*', '*/*', '3']))} ]]"
        )
    return draw(st.sampled_from(["true", "false", "! [ $N = 3 ]", "[[ -n $EMPTY || $N -gt 1 ]]"]))


@st.composite
def doubles_of_one(draw: st.DrawFn) -> str:
    """A quoted text that is one word and no operator of `test`."""
    return f'"x{draw(st.text("ab ", max_size=3))}${draw(st.sampled_from(NAMES))}"'
