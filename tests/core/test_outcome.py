"""The closed list of endings: every member's answer, and what a refusal announces."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from maitred.core.outcome import RETRY_AFTER_MAX_S, FailureKind, Outcome, Refusal

REQUEST, OVERLOAD, SERVER = "invalid_request_error", "server_overloaded", "server_error"
RATE = "rate_limit_error"
NOT_FOUND, BUSY, API = "not_found_error", "overloaded_error", "api_error"

# status, error.code, error.type; the status and error.type of Anthropic's API; x-should-retry
ANSWERS: dict[str, tuple[int, str, str, int, str, bool | None]] = {
    "completed": (200, "", "", 200, "", None),
    "bad_request": (400, "invalid_request", REQUEST, 400, REQUEST, False),
    "unauthenticated": (401, "invalid_api_key", REQUEST, 401, "authentication_error", False),
    "auth_unavailable": (503, "auth_unavailable", SERVER, 529, BUSY, True),
    "path_not_found": (404, "path_not_found", REQUEST, 404, NOT_FOUND, False),
    "method_not_allowed": (405, "method_not_allowed", REQUEST, 405, REQUEST, False),
    "request_timeout": (408, "request_timeout", REQUEST, 408, "timeout_error", True),
    "body_too_large": (413, "request_too_large", REQUEST, 413, "request_too_large", False),
    "media_type": (415, "unsupported_media_type", REQUEST, 415, REQUEST, False),
    "headers_too_large": (431, "headers_too_large", REQUEST, 431, REQUEST, False),
    "model_not_found": (404, "model_not_found", REQUEST, 404, NOT_FOUND, False),
    "context_too_long": (400, "context_length_exceeded", REQUEST, 400, REQUEST, False),
    "rate_limited": (429, "rate_limit_exceeded", RATE, 429, RATE, True),
    "concurrency_limited": (429, "rate_limit_exceeded", RATE, 429, RATE, True),
    "quota_spent": (429, "insufficient_quota", "insufficient_quota", 429, RATE, False),
    "queue_full": (429, "server_overloaded", OVERLOAD, 529, BUSY, True),
    "queue_deadline": (429, "server_overloaded", OVERLOAD, 529, BUSY, True),
    "deadline_unmeetable": (429, "server_overloaded", OVERLOAD, 529, BUSY, True),
    "evicted": (429, "server_overloaded", OVERLOAD, 529, BUSY, True),
    "no_endpoint": (503, "no_endpoint", SERVER, 529, BUSY, True),
    "draining": (503, "draining", SERVER, 529, BUSY, True),
    "engine_refused": (400, "engine_refused", REQUEST, 400, REQUEST, False),
    "engine_overloaded": (429, "server_overloaded", OVERLOAD, 529, BUSY, True),
    "failed_upstream": (502, "upstream_failed", SERVER, 502, API, False),
    "failed_deadline": (504, "deadline_exceeded", SERVER, 504, "timeout_error", False),
    "failed_truncated": (502, "stream_truncated", SERVER, 502, API, False),
    "quarantined": (500, "quarantined", SERVER, 500, API, False),
    "failed_internal": (500, "failed_internal", SERVER, 500, API, False),
    "client_gone": (499, "client_gone", "client_error", 499, API, None),
    "not_found": (404, "not_found", REQUEST, 404, NOT_FOUND, False),
    "previous_not_found": (404, "previous_response_not_found", REQUEST, 404, NOT_FOUND, False),
    "conversation_locked": (409, "conversation_locked", REQUEST, 409, REQUEST, True),
    "response_running": (409, "response_in_progress", REQUEST, 409, REQUEST, True),
    "key_reused": (422, "idempotency_key_reused", REQUEST, 422, REQUEST, False),
    "store_unavailable": (503, "store_unavailable", SERVER, 529, BUSY, True),
}

# repeatable elsewhere, the endpoint is at fault, how the ticket ends
FAILURES: dict[str, tuple[bool, bool, Outcome]] = {
    "connect": (True, True, Outcome.FAILED_UPSTREAM),
    "unreachable": (True, True, Outcome.FAILED_UPSTREAM),
    "unresolved": (True, False, Outcome.FAILED_UPSTREAM),
    "tls": (True, True, Outcome.FAILED_UPSTREAM),
    "local_limit": (True, False, Outcome.FAILED_UPSTREAM),
    "stale_connection": (True, False, Outcome.FAILED_UPSTREAM),
    "reset": (True, True, Outcome.FAILED_UPSTREAM),
    "first_byte_timeout": (False, True, Outcome.FAILED_DEADLINE),
    "idle_timeout": (False, True, Outcome.FAILED_UPSTREAM),
    "status_429": (True, False, Outcome.ENGINE_OVERLOADED),
    "status_5xx": (True, True, Outcome.FAILED_UPSTREAM),
    "bad_response": (True, True, Outcome.FAILED_UPSTREAM),
    "error_event": (True, True, Outcome.FAILED_UPSTREAM),
    "truncated": (True, True, Outcome.FAILED_TRUNCATED),
}

NEVER_REPEATED = [outcome for outcome in Outcome if not outcome.retry]
REPEATED = [outcome for outcome in Outcome if outcome.retry]


@pytest.mark.parametrize("outcome", Outcome, ids=lambda outcome: outcome.label)
def test_every_outcome_carries_its_answer(outcome: Outcome) -> None:
    openai = (outcome.status, outcome.code, outcome.kind)
    anthropic = (outcome.anthropic_status, outcome.anthropic_kind)
    assert (*openai, *anthropic, outcome.retry) == ANSWERS[outcome.label]


def test_outcomes_are_only_added_to() -> None:
    assert {outcome.label for outcome in Outcome} >= set(ANSWERS)


@pytest.mark.parametrize("kind", FailureKind, ids=lambda kind: kind.label)
def test_every_failure_says_what_it_means(kind: FailureKind) -> None:
    assert (kind.repeatable, kind.blames, kind.outcome) == FAILURES[kind.label]


def test_members_can_index_lists() -> None:
    assert [outcome.index for outcome in Outcome] == list(range(len(Outcome)))
    assert [kind.index for kind in FailureKind] == list(range(len(FailureKind)))


def test_labels_are_the_values_journals_and_logs_carry() -> None:
    assert [outcome.label for outcome in Outcome] == [outcome.value for outcome in Outcome]
    assert [kind.label for kind in FailureKind] == [kind.value for kind in FailureKind]


@given(st.sampled_from(REPEATED), st.floats(0, RETRY_AFTER_MAX_S))
@example(Outcome.QUEUE_FULL, 60.0)
@example(Outcome.QUEUE_FULL, 1.001)
def test_a_wait_is_announced_in_whole_seconds_never_shorter(outcome: Outcome, wait_s: float) -> None:
    refusal = Refusal(outcome, "later", retry_after_s=wait_s)
    assert refusal.retryable
    assert refusal.wait_s == max(1, math.ceil(wait_s))


@pytest.mark.parametrize("outcome", REPEATED)
def test_an_unknown_wait_is_the_shortest(outcome: Outcome) -> None:
    assert Refusal(outcome, "later").retryable
    assert Refusal(outcome, "later").wait_s == 1


@pytest.mark.parametrize("wait_s", [60.001, 61.0, 3600.0, math.inf])
@pytest.mark.parametrize("outcome", REPEATED)
def test_a_wait_nobody_obeys_is_a_no(outcome: Outcome, wait_s: float) -> None:
    refusal = Refusal(outcome, "later", retry_after_s=wait_s)
    assert not refusal.retryable
    assert refusal.wait_s is None


@pytest.mark.parametrize("wait_s", [None, 0.0, 5.0, 100.0])
@pytest.mark.parametrize("outcome", NEVER_REPEATED)
def test_what_no_repeat_can_help_announces_no_wait(outcome: Outcome, wait_s: float | None) -> None:
    refusal = Refusal(outcome, "no", retry_after_s=wait_s)
    assert not refusal.retryable
    assert refusal.wait_s is None


def test_a_refusal_keeps_what_it_was_told() -> None:
    refusal = Refusal(
        Outcome.METHOD_NOT_ALLOWED,
        "use POST",
        param="method",
        retry_after_s=2.0,
        headers=(("allow", "POST"),),
    )
    assert (refusal.message, str(refusal), refusal.param) == ("use POST", "use POST", "method")
    assert (refusal.retry_after_s, refusal.headers) == (2.0, (("allow", "POST"),))
