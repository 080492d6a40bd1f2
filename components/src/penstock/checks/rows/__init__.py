"""Rules that are rows of YAML files: `rule_rows` compiles them to functions, `load` imports those.

A row's expressions are Python with three-valued logic (`logic`): None is a fact that is not known.
An expression that depends on it is not known either, and a condition that is not known reports
nothing.
"""
