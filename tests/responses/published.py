"""What the specification of OpenResponses (2026-04-24) says of answers, by the models made from it."""

from __future__ import annotations

import enum
import typing
from typing import Any

import openresponses_types as published
from pydantic import BaseModel


def _events() -> dict[str, type[BaseModel]]:
    found: dict[str, type[BaseModel]] = {}
    for name, model in vars(published).items():
        if name.endswith("StreamingEvent"):
            kinds = model.model_fields["type"].annotation
            assert issubclass(kinds, enum.Enum)
            found |= {kind.value: model for kind in kinds}
    return found


EVENTS = _events()
ITEMS = {
    typing.get_args(model.model_fields["type"].annotation)[0]: model
    for model in (published.FunctionCall, published.FunctionCallOutput)
} | {"message": published.Message}


def judge(response: dict[str, Any], status: str = "completed", output: str | None = None) -> dict[str, Any]:
    """A response object: by the schema, of this status, with an item of this type."""
    published.ResponseResource.model_validate(response)
    for item in response["output"]:
        ITEMS[item["type"]].model_validate(item)
    assert response["status"] == status, response
    assert response["output"], response
    assert output is None or output in {item["type"] for item in response["output"]}
    return response


def judge_events(events: list[dict[str, Any]], output: str | None = None) -> list[str]:
    """A stream: each event by its schema, the numbers without a gap, the response at its end; the types."""
    for event in events:
        EVENTS[event["type"]].model_validate(event)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    judge(events[-1]["response"], output=output)
    return [event["type"] for event in events]
