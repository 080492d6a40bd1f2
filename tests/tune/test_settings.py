"""Settings reach the replay as if they were rendered from the graph."""

from __future__ import annotations

import pytest
import yaml

from penstock.simulate.router import POLICY_FILE
from penstock.tune.settings import (
    CREDITS,
    DYNAMO_DEFAULT,
    QUEUES,
    SCALES,
    RouterSettings,
    grid,
    settings_of,
    shown,
    with_settings,
)
from tests.simulate.test_replayable import of
from tests.tune.scripted import deployment


def test_the_grid_begins_with_dynamos_default_and_has_every_combination() -> None:
    assert grid()[0] == DYNAMO_DEFAULT == settings_of(deployment())
    assert len(set(grid())) == len(SCALES) * len(CREDITS) * len(QUEUES)


@pytest.mark.parametrize("settings", grid())
def test_settings_are_read_back(settings: RouterSettings) -> None:
    changed = with_settings(deployment(prefill_load_scale=2), settings)
    assert settings_of(changed) == settings
    assert settings_of(with_settings(changed, DYNAMO_DEFAULT)) == DYNAMO_DEFAULT
    assert changed.router.settings is not None
    assert changed.router.settings["router_temperature"] == 0.0


def test_a_flag_of_the_threshold_is_replaced() -> None:
    flagged = deployment(router_queue_threshold=2.0, router_queue_policy="wspt")
    assert settings_of(flagged) == RouterSettings(1, 1, 2.0, "wspt")
    assert settings_of(with_settings(flagged, DYNAMO_DEFAULT)) == DYNAMO_DEFAULT
    assert settings_of(deployment(router_queue_policy="wspt")) == DYNAMO_DEFAULT  # no queue
    assert settings_of(deployment(router_queue_threshold=2.0)) == RouterSettings(1, 1, 2.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings", [RouterSettings(4, 2), RouterSettings(8, 1, 0.0), RouterSettings(4, 4, 0.5, "wspt")]
)
def test_replayed_settings_are_those_that_the_chart_renders(settings: RouterSettings) -> None:
    name = "gpt-oss-120b-b200-disagg"
    sets = [f"router.{k}={shown(v)}" for k, v in settings.keys.items() if v is not None]
    rendered = dict(of(name, *sets).router.settings or {})
    replayed = dict(with_settings(of(name), settings).router.settings or {})
    policies = [
        yaml.safe_load(router_settings.pop(POLICY_FILE, "{}"))
        for router_settings in (rendered, replayed)
    ]
    assert rendered == replayed
    assert policies[0] == policies[1]
    assert bool(policies[0]) == (settings.queue_threshold is not None)
