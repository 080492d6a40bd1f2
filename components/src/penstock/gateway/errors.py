"""The errors of a gateway for one policy: Envoy's own responses in the format of OpenAI.

Responses of frontends pass unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.gateway.policy import Policy, retry_after_s
from penstock.graph.gateway import Limits
from penstock.graph.openai_errors import ERRORS, INVALID, filled

Config = dict[str, Any]

NAMESPACE = "penstock"  # of the route's metadata
ROUTE_NUMBERS = ("largest_request", "requests", "unit", "retry_after_s")


def numbers_of(policy: Policy) -> Mapping[str, object]:
    """The numbers in messages and headers."""
    limits = policy.limits
    numbers = {"upload_s": limits.timeouts.upload_s, "largest_request": largest_request(limits)}
    if limits.rate_limit is None:
        return numbers
    limit, wait_s = limits.rate_limit, retry_after_s(limits.rate_limit)
    return {**numbers, "requests": limit.requests, "unit": limit.unit, "retry_after_s": wait_s}


def largest_request(limits: Limits) -> str:
    """The limits of one request as text, for a message."""
    messages = f" or {limits.max_messages} messages" if limits.max_messages else ""
    return f"{limits.max_request_kib} KiB{messages}"


def headers_of(status: int, policy: Policy) -> dict[str, str]:
    """The headers that an error adds to its response."""
    numbers = numbers_of(policy)
    return {name: filled(text, numbers) for name, text in ERRORS[status].headers.items()}


def statuses_of(policy: Policy) -> list[int]:
    """The statuses that the policy of a route can result in; 429 only with a rate limit."""
    statuses = [status for status, error in ERRORS.items() if error.has_route]
    return [status for status in statuses if status != 429 or policy.limits.rate_limit is not None]


def local_replies(policy: Policy) -> Config:
    """Envoy's `local_reply_config`: a mapper for each error, and one for all others.

    The numbers of a route come from its metadata, as a route can change while Envoy runs.
    """
    numbers = {name: f"%METADATA(ROUTE:{NAMESPACE}:{name})%" for name in ROUTE_NUMBERS}
    numbers["upload_s"] = str(policy.limits.timeouts.upload_s)
    return {"mappers": [*(_mapper(status, numbers) for status in ERRORS), _any_other()]}


def route_metadata(policy: Policy) -> Config:
    """The numbers of a route for the messages and headers of `local_replies`."""
    numbers = numbers_of(policy)
    known = {name: str(numbers[name]) for name in ROUTE_NUMBERS if name in numbers}
    return {"filter_metadata": {NAMESPACE: known}}


def _mapper(status: int, numbers: Mapping[str, object]) -> Config:
    error = ERRORS[status]
    return {
        "filter": status_filter("EQ", status),
        "headers_to_add": [
            header(name, filled(text, numbers)) for name, text in error.headers.items()
        ],
        "body_format_override": json_format(error.body(numbers)),
    }


def _any_other() -> Config:
    """The format of other errors, such as 400 for a malformed request. The message is Envoy's."""
    error = {"message": "%LOCAL_REPLY_BODY%", "type": INVALID, "param": None, "code": None}
    return {
        "filter": status_filter("GE", 400),
        "body_format_override": json_format({"error": error}),
    }


def header(name: str, text: str) -> Config:
    """To set in a response."""
    append = "OVERWRITE_IF_EXISTS_OR_ADD"
    return {"header": {"key": name, "value": text}, "append_action": append}


def status_filter(operator: str, status: int) -> Config:
    value = {"default_value": status, "runtime_key": f"status_{status}"}
    return {"status_code_filter": {"comparison": {"op": operator, "value": value}}}


def json_format(body: Config) -> Config:
    return {"json_format": body, "content_type": "application/json"}
