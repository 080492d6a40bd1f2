"""The gateway's own errors, as OpenAI's Python client sees them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
import openai
import pytest

from penstock.gateway.errors import headers_of, numbers_of, statuses_of
from penstock.gateway.policy import Policy, retry_after_s
from penstock.graph.openai_errors import ERRORS
from tests.gateway.fakes import Frontend
from tests.gateway.samples import BACKENDS, PLANTED, policy
from tests.gateway.test_envoy import KEYS, serving
from tests.support.waiting import first_good

CHAT = "/v1/chat/completions"


def limited(requests: int, unit: str) -> Policy:
    return policy(
        BACKENDS + f"rate_limit: {{requests: {requests}, unit: {unit}}}\nmax_request_kib: 64\n"
    )


@contextmanager
def openai_client(
    base: httpx.Client,
    key: str = PLANTED,
    retries: int = 0,
    received: Callable[[httpx.Response], object] = lambda _: None,
) -> Iterator[openai.OpenAI]:
    """``received`` is called with each response."""
    url = f"{str(base.base_url).rstrip('/')}/v1"
    hooks = {"response": [received]}
    with httpx.Client(trust_env=False, timeout=10, event_hooks=hooks) as http:
        yield openai.OpenAI(base_url=url, api_key=key, max_retries=retries, http_client=http)


def error_of(error: openai.APIStatusError) -> dict[str, object]:
    """The error's body, which must have OpenAI's four fields."""
    assert error.response.headers["content-type"] == "application/json"
    body: dict[str, object] = error.response.json()["error"]
    assert set(body) == {"message", "type", "param", "code"}
    return body


def ask(client: openai.OpenAI, text: str = "hello") -> None:
    client.chat.completions.create(model="m", messages=[{"role": "user", "content": text}])


@pytest.mark.needs("envoy")
def test_openais_client_raises_the_exception_of_each_error() -> None:
    with Frontend("{}") as stable, serving(limited(2, "hour"), stable=stable.port) as base:
        with (
            openai_client(base, "unknown-key-of-a-client") as client,
            pytest.raises(openai.AuthenticationError) as missing,
        ):
            ask(client)
        with openai_client(base) as client:
            with pytest.raises(openai.APIStatusError) as large:
                ask(client, "x" * 70_000)
            client.models.list()
            client.models.list()
            with pytest.raises(openai.RateLimitError) as limit:
                client.models.list()
        unknown = base.get("/metrics", headers={"Authorization": f"Bearer {PLANTED}"})
        assert len(stable.seen) == 2
    assert error_of(missing.value)["code"] == "invalid_api_key"
    assert missing.value.response.headers["www-authenticate"] == "Bearer"
    assert large.value.status_code == 413
    assert error_of(large.value)["message"] == (
        "The request exceeds the limit of this gateway: 64 KiB."
    )
    body = error_of(limit.value)
    assert (body["type"], body["code"]) == ("rate_limit_error", "rate_limit_exceeded")
    assert body["message"] == "Rate limit reached: 2 requests per hour."
    assert limit.value.response.headers["retry-after"] == "1800"
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "unknown_url")


@pytest.mark.needs("envoy")
def test_openais_client_waits_as_long_as_retry_after_says() -> None:
    responses: list[httpx.Response] = []
    with (
        Frontend("{}") as stable,
        serving(limited(1, "second"), stable=stable.port) as base,
        openai_client(base, retries=1, received=responses.append) as client,
    ):

        def waited(_: int) -> float:
            responses.clear()
            while base.get("/v1/models", headers=bearer()).status_code == 200:
                """Use up the bucket."""
            begun = time.monotonic()
            client.models.list()  # fails if the only retry comes before the next token
            return time.monotonic() - begun

        # A token that comes before the first attempt leaves nothing to wait for.
        seconds = first_good(waited, lambda _: len(responses) == 2)
    assert [response.status_code for response in responses] == [429, 200]
    assert seconds >= float(responses[0].headers["retry-after"]) == 1


def bearer() -> dict[str, str]:
    return {"Authorization": f"Bearer {KEYS['alice']}"}


@pytest.mark.needs("envoy")
def test_a_frontend_that_is_down_or_slow_gives_openais_errors() -> None:
    quick = policy(BACKENDS + "timeouts: {request_s: 1}\nretries: 0\n")
    with serving(quick, stable=1) as base:
        down = base.get("/v1/models", headers=bearer())
    assert (down.status_code, down.headers["retry-after"]) == (503, "5")
    assert down.json()["error"]["code"] == "service_unavailable"
    with Frontend("{}", responds=False) as slow, serving(quick, stable=slow.port) as base:
        late = base.get("/v1/models", headers=bearer())
    assert (late.status_code, late.json()["error"]["code"]) == (504, "timeout")


@pytest.mark.needs("envoy")
def test_another_error_of_envoy_has_openais_format_too() -> None:
    with serving(policy(), stable=1) as base:
        answer = base.post(CHAT, headers=bearer() | {"x-large": "x" * 70_000})
    assert answer.status_code == 431
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


@pytest.mark.needs("envoy")
def test_an_error_of_a_frontend_passes_unchanged() -> None:
    for status in (400, 404, 429):
        with (
            Frontend("from the frontend", status) as stable,
            serving(policy(), stable=stable.port) as base,
        ):
            answer = base.post(CHAT, headers=bearer())
        assert (answer.status_code, answer.text) == (status, "from the frontend")
        assert "retry-after" not in answer.headers


def test_every_number_of_the_messages_is_known() -> None:
    rules = limited(7, "second")
    numbers = numbers_of(rules)
    for status in statuses_of(rules):
        texts = [
            ERRORS[status].body(numbers)["error"]["message"],
            *headers_of(status, rules).values(),
        ]
        assert not any("{" in str(text) for text in texts)
    assert 429 not in statuses_of(policy())


@pytest.mark.parametrize(
    ("requests", "unit", "seconds"),
    [(1, "second", 1), (600, "minute", 1), (7, "minute", 9), (5, "hour", 720), (1, "hour", 3600)],
)
def test_retry_after_is_the_time_until_the_next_token(
    requests: int, unit: str, seconds: int
) -> None:
    limit = limited(requests, unit).limits.rate_limit
    assert limit is not None
    assert retry_after_s(limit) == seconds
