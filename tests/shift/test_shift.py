"""The steps of a shift with scripted frontends: what is written, and what is undone."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from penstock.cluster.api_errors import UnavailableError
from penstock.errors import ClusterError, PenstockError, RolloutError
from penstock.gateway.model import parse_gateway
from penstock.metrics import Metrics, Sample
from penstock.serving.frontend_metrics import ITL, REQUESTS, STARTED, TTFT
from penstock.shift.frontends import Prompt, require_same_prompts
from penstock.shift.run import Gateway, Options, Shift
from penstock.shift.weights import GatewayFile
from tests.gateway.samples import MINIMAL

BACKENDS = """\
backends:  # both serve the same model
  - {release: old, weight: 100}  # since May
  - release: new
    weight: 0
"""
OPTIONS = Options(
    steps=(5, 50, 100), copies=100, step_s=60, step_requests=100, limit_s=1800, slower=1.2
)
PER_S = 10.0


@dataclass
class Traffic:
    """Requests that follow the weights in a file, on a clock that does not wait."""

    file: Path
    ttft_s: dict[str, float] = field(default_factory=lambda: {"old": 0.05, "new": 0.05})
    fails: dict[str, float] = field(default_factory=lambda: {"old": 0.0, "new": 0.0})
    per_s: float = PER_S
    silent_s: tuple[float, float] = (0, 0)
    """Of each so many seconds, the new release does not respond for so long."""
    hangs: float = 0.0
    """Share of the requests of the new release without a token."""
    foreign: bool = False
    """Whether another client has written the gateway."""
    time_s: float = 0.0
    served: dict[str, float] = field(default_factory=lambda: {"old": 1000.0, "new": 0.0})
    written: list[tuple[int, int, int]] = field(default_factory=list)
    at: dict[float, Callable[[], object]] = field(default_factory=dict)
    """What happens at a time."""

    def now(self) -> float:
        return self.time_s

    def sleep(self, seconds: float) -> None:
        self.time_s += seconds
        old, new, copies = self.weights()
        self.served["old"] += seconds * self.per_s * old / (old + new)
        self.served["new"] += seconds * self.per_s * (new / (old + new) + copies / 100)
        for time_s in [t for t in self.at if t <= self.time_s]:
            self.at.pop(time_s)()

    def weights(self) -> tuple[int, int, int]:
        """Of old and new, and the percentage of copies."""
        gateway = parse_gateway(self.file.read_text(), "gateway.yaml")
        shares = {b.release: b.weight for b in gateway.backends}
        return shares["old"], shares["new"], gateway.shadow.percent if gateway.shadow else 0

    def confirm(self) -> None:
        if self.foreign:
            raise RolloutError("has other weights than the file")

    def publish(self) -> None:
        self.written.append(self.weights())

    def frontends(self, name: str) -> Frontends:
        return Frontends(self, name)


@dataclass
class Frontends:
    traffic: Traffic
    name: str

    def scrape(self) -> Mapping[Hashable, Metrics]:
        traffic, name = self.traffic, self.name
        every_s, for_s = traffic.silent_s
        if every_s and name == "new" and traffic.time_s % every_s < for_s:
            return {}
        requests = traffic.served[name]
        errors = requests * traffic.fails[name]
        served = requests * (1 - traffic.hangs if name == "new" else 1)
        samples = [
            Sample(STARTED, {}, requests),
            Sample(REQUESTS, {"status": "success", "error_type": ""}, served - errors),
            Sample(REQUESTS, {"status": "error", "error_type": "internal"}, errors),
        ]
        for metric, mean in ((TTFT, traffic.ttft_s[name]), (ITL, 0.005)):
            samples += [Sample(f"{metric}_bucket", {"le": le}, served) for le in ("1", "+Inf")]
            samples.append(Sample(f"{metric}_count", {}, served))
            samples.append(Sample(f"{metric}_sum", {}, mean * served))
        return {name: Metrics(tuple(samples))}


@pytest.fixture
def traffic(tmp_path: Path) -> Traffic:
    file = tmp_path / "gateway.yaml"
    file.write_text(MINIMAL + BACKENDS)
    return Traffic(file)


def run(traffic: Traffic, options: Options = OPTIONS) -> list[str]:
    lines: list[str] = []
    old, new = traffic.frontends("old"), traffic.frontends("new")
    file = GatewayFile.open(traffic.file, "new")
    gateway = Gateway(publish=traffic.publish, confirm=traffic.confirm)
    Shift(file, old, new, options, gateway, traffic, lines.append).run()
    return lines


def refused(traffic: Traffic, options: Options = OPTIONS) -> str:
    """The message of a shift that leaves the file and the gateway as they were."""
    before = traffic.file.read_text()
    with pytest.raises(RolloutError) as error:
        run(traffic, options)
    assert traffic.file.read_text() == before
    assert not traffic.written or traffic.written[-1] == (100, 0, 0)
    return str(error.value)


def test_a_good_release_gets_copies_then_shares_then_everything(traffic: Traffic) -> None:
    lines = run(traffic)
    assert traffic.written[1:] == [(100, 0, 100), (95, 5, 0), (50, 50, 0), (0, 100, 0)]
    text = (MINIMAL + BACKENDS).replace("weight: 100}", "weight: 0}")
    assert traffic.file.read_text() == text.replace("    weight: 0\n", "    weight: 100\n")
    # 60 s before and of each step, except 5 % of 10 requests per second: 200 s.
    assert traffic.time_s == pytest.approx(60 + 60 + 200 + 60 + 60, abs=20)
    assert any(line.startswith("  new: 100 requests, 0 failed, mean TTFT 50 ± ") for line in lines)


@pytest.mark.parametrize(
    ("change", "expected", "written"),
    [
        ({"fails": {"old": 0.0, "new": 0.02}}, "requests failed, but 0 of", 3),
        ({"ttft_s": {"old": 0.05, "new": 0.5}}, "the mean TTFT is 500 ± ", 3),
        ({"silent_s": (1, 1)}, "no frontend has responded to 5 of the last 5 scrapes", 3),
        ({"silent_s": (12, 6)}, "no frontend has responded to 5 of the last", 3),
        ({"hangs": 0.3}, "requests have no token yet, and ", 3),
        ({"foreign": True}, "has other weights than the file", 2),
        ({"per_s": 0.01}, "old: completed only 18 requests in 30 minutes, which is too few", 2),
        ({"per_s": 0.0}, "old: no request reached it within 60 s", 2),
    ],
)
def test_a_worse_release_gets_no_request_any_more(
    traffic: Traffic, change: dict[str, object], expected: str, written: int
) -> None:
    changed = replace(traffic, **change)  # type: ignore[arg-type]
    assert expected in refused(changed)
    assert len(changed.written) == written


def test_a_release_that_becomes_worse_is_found_in_each_step(traffic: Traffic) -> None:
    traffic.at = {150.0: lambda: traffic.fails.update(new=0.2)}
    assert "requests failed" in refused(traffic)
    assert traffic.written[1:] == [(100, 0, 100), (95, 5, 0), (100, 0, 0)]


def test_an_edit_during_the_shift_is_kept(traffic: Traffic) -> None:
    edited = MINIMAL + BACKENDS.replace("weight: 100", "weight: 1")
    traffic.at = {130.0: lambda: traffic.file.write_text(edited)}
    with pytest.raises(RolloutError, match="was edited during the shift"):
        run(traffic)
    assert traffic.file.read_text() == edited
    assert traffic.time_s == 130


def test_ctrl_c_undoes_the_edits(traffic: Traffic) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    traffic.at = {130.0: interrupt}
    with pytest.raises(KeyboardInterrupt):
        run(traffic)
    assert traffic.file.read_text() == MINIMAL + BACKENDS
    assert traffic.written[-1] == (100, 0, 0)


@pytest.mark.parametrize(("fails", "ends"), [(3, True), (300, False)])
def test_a_cluster_that_does_not_respond_is_asked_again(
    traffic: Traffic, fails: int, ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([UnavailableError("cannot be reached")] * fails)

    def publish() -> None:
        if (error := next(answers, None)) is not None:
            raise error
        traffic.written.append(traffic.weights())

    monkeypatch.setattr(traffic, "publish", publish)
    if ends:
        assert sum("reached; retrying for up to 60 s" in line for line in run(traffic)) == fails
        assert traffic.written[-1] == (0, 100, 0)
        return
    with pytest.raises(ClusterError):
        run(traffic)
    assert traffic.file.read_text() == MINIMAL + BACKENDS
    assert traffic.time_s >= 590  # until the requests are where they were, as long as possible


def test_a_killed_shift_continues_where_it_was(traffic: Traffic) -> None:
    halfway = BACKENDS.replace("100", "50").replace("weight: 0", "weight: 50")
    traffic.file.write_text(MINIMAL + halfway)
    run(traffic)
    assert traffic.written == [(50, 50, 0), (0, 100, 0)]


def test_a_shift_that_was_killed_can_still_be_undone(traffic: Traffic) -> None:
    halfway = BACKENDS.replace("100", "50").replace("weight: 0", "weight: 50")
    for left in (halfway, BACKENDS + "shadow: {release: new, percent: 100}\n"):
        traffic.file.write_text(MINIMAL + left)
        changed = replace(traffic, fails={"old": 0.0, "new": 0.2})
        with pytest.raises(RolloutError, match="All requests go to old again"):
            run(changed)
        assert traffic.file.read_text() == MINIMAL + BACKENDS


def test_small_weights_become_percentages(traffic: Traffic) -> None:
    traffic.file.write_text(MINIMAL + BACKENDS.replace("100", "1"))
    run(traffic)
    assert traffic.written[-1] == (0, 100, 0)


@pytest.mark.parametrize(
    ("backends", "expected"),
    [
        (MINIMAL + BACKENDS + "...\n", "gateway.yaml"),
        (MINIMAL + BACKENDS.replace("100", "1") + "  - {release: third, weight: 1}\n", "third"),
    ],
)
def test_a_file_that_cannot_be_edited_is_refused_before_the_first_step(
    traffic: Traffic, backends: str, expected: str
) -> None:
    traffic.file.write_text(backends)
    with pytest.raises(PenstockError, match=expected):
        run(traffic)
    assert traffic.written == []


def test_large_weights_and_an_idle_third_release_are_accepted(traffic: Traffic) -> None:
    large = BACKENDS.replace("100", "600000") + "  - {release: third, weight: 0}\n"
    traffic.file.write_text(MINIMAL + large)
    run(traffic)
    assert traffic.written[-1] == (0, 100, 0)


THIRD = "  - {release: third, weight: 7}\n"
WITH_SHADOW = BACKENDS + "shadow: {release: other, percent: 5}\n"


@pytest.mark.parametrize(
    ("backends", "new", "expected"),
    [
        (BACKENDS, "nwe", "backends: nwe is not in the file. Fix: Did you mean `new`?"),
        (BACKENDS, "old", "backends: old already gets all requests"),
        (BACKENDS + THIRD, "new", "new can replace one release, but old and third serve clients"),
        (WITH_SHADOW, "new", "shadow: the gateway has the shadow other. Fix: Remove the section"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(
    traffic: Traffic, backends: str, new: str, expected: str
) -> None:
    traffic.file.write_text(MINIMAL + backends)
    with pytest.raises(PenstockError) as error:
        GatewayFile.open(traffic.file, new)
    assert expected in str(error.value)


def test_other_prompts_and_names_are_refused() -> None:
    old = Prompt(model="m", tokens=61)
    require_same_prompts(old, old, permits_other=False)
    require_same_prompts(old, Prompt(model="m", tokens=65), permits_other=True)
    with pytest.raises(RolloutError, match="the same chat has 65 prompt tokens"):
        require_same_prompts(old, Prompt(model="m", tokens=65), permits_other=False)
    with pytest.raises(RolloutError, match="the new release serves n, and the old one m"):
        require_same_prompts(old, Prompt(model="n", tokens=61), permits_other=True)
