"""How a request can end: one closed list, used unchanged as metric label, log field and answer.

Members are public and only ever added to. Each carries its answer in the calling API's shape, so that
nobody downstream needs a table of their own.
"""

from __future__ import annotations

import math
from enum import Enum

from maitred.core.limits import Levels

RETRY_AFTER_MAX_S = 60
"""Official clients ignore longer waits, so a longer one is answered with `x-should-retry: false`."""

_REQUEST, _SERVER = "invalid_request_error", "server_error"
_RATE = "rate_limit_error"
_OVERLOADED, _OVERLOADED_A = "server_overloaded", "overloaded_error"


class Outcome(Enum):
    """One way for a request to end.

    Attributes of each member: `label` (metric label and log field), `status` (HTTP status of an answer
    the gateway makes itself), `code` and `kind` (OpenAI's `error.code` and `error.type`), `anthropic_status`
    and `anthropic_kind` (the same for clients of Anthropic's API, whose errors have no code), `retry`
    (whether the same request may succeed later; None where no answer carries it).
    """

    #        label, status, OpenAI's code, type; Anthropic's status, type; retry
    COMPLETED = ("completed", 200, "", "", 200, "", None)
    BAD_REQUEST = ("bad_request", 400, "invalid_request", _REQUEST, 400, _REQUEST, False)
    UNAUTHENTICATED = (
        "unauthenticated",
        401,
        "invalid_api_key",
        _REQUEST,
        401,
        "authentication_error",
        False,
    )
    AUTH_UNAVAILABLE = ("auth_unavailable", 503, "auth_unavailable", _SERVER, 529, _OVERLOADED_A, True)
    PATH_NOT_FOUND = ("path_not_found", 404, "path_not_found", _REQUEST, 404, "not_found_error", False)
    METHOD_NOT_ALLOWED = ("method_not_allowed", 405, "method_not_allowed", _REQUEST, 405, _REQUEST, False)
    REQUEST_TIMEOUT = ("request_timeout", 408, "request_timeout", _REQUEST, 408, "timeout_error", True)
    BODY_TOO_LARGE = ("body_too_large", 413, "request_too_large", _REQUEST, 413, "request_too_large", False)
    MEDIA_TYPE = ("media_type", 415, "unsupported_media_type", _REQUEST, 415, _REQUEST, False)
    HEADERS_TOO_LARGE = ("headers_too_large", 431, "headers_too_large", _REQUEST, 431, _REQUEST, False)
    MODEL_NOT_FOUND = ("model_not_found", 404, "model_not_found", _REQUEST, 404, "not_found_error", False)
    CONTEXT_TOO_LONG = ("context_too_long", 400, "context_length_exceeded", _REQUEST, 400, _REQUEST, False)
    RATE_LIMITED = ("rate_limited", 429, "rate_limit_exceeded", _RATE, 429, "rate_limit_error", True)
    CONCURRENCY_LIMITED = (
        "concurrency_limited", 429, "rate_limit_exceeded", _RATE, 429, "rate_limit_error", True
    )  # fmt: skip
    QUOTA_SPENT = (
        "quota_spent", 429, "insufficient_quota", "insufficient_quota", 429, "rate_limit_error", False
    )  # fmt: skip
    QUEUE_FULL = ("queue_full", 429, "server_overloaded", _OVERLOADED, 529, _OVERLOADED_A, True)
    QUEUE_DEADLINE = ("queue_deadline", 429, "server_overloaded", _OVERLOADED, 529, _OVERLOADED_A, True)
    DEADLINE_UNMEETABLE = (
        "deadline_unmeetable", 429, "server_overloaded", _OVERLOADED, 529, _OVERLOADED_A, True
    )  # fmt: skip
    EVICTED = ("evicted", 429, "server_overloaded", _OVERLOADED, 529, _OVERLOADED_A, True)
    NO_ENDPOINT = ("no_endpoint", 503, "no_endpoint", _SERVER, 529, _OVERLOADED_A, True)
    DRAINING = ("draining", 503, "draining", _SERVER, 529, _OVERLOADED_A, True)
    ENGINE_REFUSED = ("engine_refused", 400, "engine_refused", _REQUEST, 400, _REQUEST, False)
    ENGINE_OVERLOADED = ("engine_overloaded", 429, "server_overloaded", _OVERLOADED, 529, _OVERLOADED_A, True)
    FAILED_UPSTREAM = ("failed_upstream", 502, "upstream_failed", _SERVER, 502, "api_error", False)
    FAILED_DEADLINE = ("failed_deadline", 504, "deadline_exceeded", _SERVER, 504, "timeout_error", False)
    FAILED_TRUNCATED = ("failed_truncated", 502, "stream_truncated", _SERVER, 502, "api_error", False)
    QUARANTINED = ("quarantined", 500, "quarantined", _SERVER, 500, "api_error", False)
    FAILED_INTERNAL = ("failed_internal", 500, "failed_internal", _SERVER, 500, "api_error", False)
    CLIENT_GONE = ("client_gone", 499, "client_gone", "client_error", 499, "api_error", None)
    NOT_FOUND = ("not_found", 404, "not_found", _REQUEST, 404, "not_found_error", False)
    PREVIOUS_NOT_FOUND = (
        "previous_not_found", 404, "previous_response_not_found", _REQUEST, 404, "not_found_error", False
    )  # fmt: skip
    CONVERSATION_LOCKED = (
        "conversation_locked", 409, "conversation_locked", _REQUEST, 409, _REQUEST, True
    )  # fmt: skip
    RESPONSE_RUNNING = ("response_running", 409, "response_in_progress", _REQUEST, 409, _REQUEST, True)
    KEY_REUSED = ("key_reused", 422, "idempotency_key_reused", _REQUEST, 422, _REQUEST, False)
    STORE_UNAVAILABLE = ("store_unavailable", 503, "store_unavailable", _SERVER, 529, _OVERLOADED_A, True)

    label: str
    status: int
    code: str
    kind: str
    anthropic_status: int
    anthropic_kind: str
    retry: bool | None
    index: int

    def __new__(
        cls, label: str, status: int, code: str, kind: str, a_status: int, a_kind: str, retry: bool | None
    ) -> Outcome:
        """Give the member its attributes; `index` counts members so that metrics can index lists."""
        member = object.__new__(cls)
        member._value_ = label
        member.label, member.retry = label, retry
        member.status, member.code, member.kind = status, code, kind
        member.anthropic_status, member.anthropic_kind = a_status, a_kind
        member.index = len(cls.__members__)
        return member


class Refusal(Exception):  # noqa: N818 - a refusal is an answer, not a mishap
    """The client's fault or our limits: the request is answered without an engine.

    `param` names the offending field in the client's own words; `retry_after_s` is the predicted wait in
    seconds (None: unknown or useless). `levels` are what is left where a rate was the reason, and `whose`
    is the kind of holder that a limit of ours was the reason for: "tenant", "key" or "model".
    """

    def __init__(
        self,
        outcome: Outcome,
        message: str,
        *,
        param: str | None = None,
        retry_after_s: float | None = None,
        headers: tuple[tuple[str, str], ...] = (),
        levels: Levels | None = None,
        whose: str = "",
    ) -> None:
        super().__init__(message)
        self.outcome = outcome
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s
        self.headers = headers
        self.levels = levels
        self.whose = whose

    @property
    def retryable(self) -> bool:
        """Whether to tell the client that a repeat can help: never when the wait is too long to be obeyed."""
        return bool(self.outcome.retry) and (self.retry_after_s or 0) <= RETRY_AFTER_MAX_S

    @property
    def wait_s(self) -> float | None:
        """The wait to announce, within 1 and 60 seconds; None when none should be announced."""
        if not self.retryable:
            return None
        return float(min(max(1, math.ceil(self.retry_after_s or 1)), RETRY_AFTER_MAX_S))


class FailureKind(Enum):
    """What can go wrong with one leg. `repeatable`: another endpoint may be tried while no content has left.

    `blames`: the endpoint is at fault. `outcome`: how the ticket ends when no attempt is left. CONNECT is a
    refused connection; UNREACHABLE is one that was not answered, UNRESOLVED a name without address.
    """

    #                      repeatable blames outcome
    CONNECT = ("connect", True, True, Outcome.FAILED_UPSTREAM)
    UNREACHABLE = ("unreachable", True, True, Outcome.FAILED_UPSTREAM)
    UNRESOLVED = ("unresolved", True, False, Outcome.FAILED_UPSTREAM)
    TLS = ("tls", True, True, Outcome.FAILED_UPSTREAM)
    LOCAL_LIMIT = ("local_limit", True, False, Outcome.FAILED_UPSTREAM)
    STALE_CONNECTION = ("stale_connection", True, False, Outcome.FAILED_UPSTREAM)
    RESET = ("reset", True, True, Outcome.FAILED_UPSTREAM)
    FIRST_BYTE_TIMEOUT = ("first_byte_timeout", False, True, Outcome.FAILED_DEADLINE)
    IDLE_TIMEOUT = ("idle_timeout", False, True, Outcome.FAILED_UPSTREAM)
    STATUS_429 = ("status_429", True, False, Outcome.ENGINE_OVERLOADED)
    STATUS_5XX = ("status_5xx", True, True, Outcome.FAILED_UPSTREAM)
    BAD_RESPONSE = ("bad_response", True, True, Outcome.FAILED_UPSTREAM)
    ERROR_EVENT = ("error_event", True, True, Outcome.FAILED_UPSTREAM)
    TRUNCATED = ("truncated", True, True, Outcome.FAILED_TRUNCATED)

    label: str
    repeatable: bool
    blames: bool
    outcome: Outcome
    index: int

    def __new__(cls, label: str, repeatable: bool, blames: bool, outcome: Outcome) -> FailureKind:
        """Give the member its attributes."""
        member = object.__new__(cls)
        member._value_ = label
        member.label, member.repeatable, member.blames, member.outcome = label, repeatable, blames, outcome
        member.index = len(cls.__members__)
        return member
