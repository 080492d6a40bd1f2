"""The command line: one module per command, with `add_arguments` and `run`.

`main.py` groups the commands, parses and turns errors into exit codes; `command_line.py` is the
parser, `arguments.py`, `replaying.py` and `outputs.py` declare what several commands take, and
`other_names.py` has the old names. Heavy imports are inside functions.
"""
