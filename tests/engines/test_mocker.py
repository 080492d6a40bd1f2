"""The mocker in its own place."""

from __future__ import annotations

from penstock.manifests.deployment import Engine
from penstock.manifests.flags import without_flags

from .launches import refusal, simulated


def test_its_own_arguments_stay_but_for_model_and_planes() -> None:
    found = simulated(
        Engine.MOCKER,
        "--model-path a/b --model-name=n --speedup-ratio 10 --discovery-backend kubernetes",
    )
    assert found.arguments == ("--speedup-ratio", "10")
    assert (found.model, found.served_names) == ("a/b", ("n",))


def test_what_the_mocker_refuses_after_its_parser_is_refused() -> None:
    assert "block_size must be at least two" in refusal("dynamo.mocker --block-size 1")
    assert "unknown variant `foo`" in refusal("dynamo.mocker --engine-type foo")


def test_flags_are_taken_out_in_both_spellings() -> None:
    arguments = ("--a", "1", "--b=2", "--c", "--a=3", "--d")
    assert without_flags(arguments, "--a") == ("--b=2", "--c", "--d")
