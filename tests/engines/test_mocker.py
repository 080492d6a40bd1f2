"""The mocker in its own place."""

from __future__ import annotations

from penstock.manifests.deployment import Engine
from penstock.manifests.flags import without_flags

from .launches import rejection, simulated


def test_the_mockers_own_arguments_are_kept_except_model_and_planes() -> None:
    found = simulated(
        Engine.MOCKER,
        "--model-path a/b --model-name=n --speedup-ratio 10 --discovery-backend kubernetes",
    )
    assert found.arguments == ("--speedup-ratio", "10")
    assert (found.model, found.served_names) == ("a/b", ("n",))


def test_values_that_the_mocker_rejects_after_its_parser_are_rejected() -> None:
    assert "block_size must be at least two" in rejection("dynamo.mocker --block-size 1")
    assert "unknown variant `foo`" in rejection("dynamo.mocker --engine-type foo")


def test_flags_are_removed_in_both_spellings() -> None:
    arguments = ("--a", "1", "--b=2", "--c", "--a=3", "--d")
    assert without_flags(arguments, "--a") == ("--b=2", "--c", "--d")
