"""The application's own log: one record a line on stderr, for people or as JSON.

Its few lines tell what operators act on; requests are the access log's matter and numbers the metrics'.
"""

from __future__ import annotations

import logging

import msgspec

from maitred.core.events import EndpointMoved, Event, Hears
from maitred.core.words import EndpointState
from maitred.observe.access import Style, printable
from maitred.observe.sink import Sink

logger = logging.getLogger("maitred.endpoints")

LIBRARIES = ("alembic", "psycopg", "sqlalchemy")
"""Those that tell at lower levels what they do, values included; only their warnings are kept."""


class HumanFormatter(logging.Formatter):
    """Time, level, logger, message; a traceback follows on lines of its own."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the standard library's name
        """The line itself: line breaks of a message must not look like further records."""
        record.message = printable(record.message)
        return super().formatMessage(record)


class JsonFormatter(logging.Formatter):
    """One object: ts (wall time in ms), level, logger, message and, if there is one, the traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line of JSON."""
        line = {
            "ts": int(record.created * 1000),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


def setup(style: Style, level: str, sink: Sink) -> None:
    """Send all logging from `level` ("debug", "info", "warning", "error") on to `sink`, flushed each time."""
    handler = logging.StreamHandler(sink)
    handler.setFormatter(JsonFormatter() if style == "json" else HumanFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for library in LIBRARIES:
        logging.getLogger(library).setLevel(max(logging.WARNING, logging.getLogger().level))


class MoveLog:
    """Subscriber that logs each move of an endpoint; being ejected is a warning."""

    def __init__(self) -> None:
        self.hears: Hears = {EndpointMoved: self}

    def __call__(self, event: Event) -> None:
        """Log one move; other events are not for this log."""
        if isinstance(event, EndpointMoved):
            level = logging.WARNING if event.after is EndpointState.EJECTED else logging.INFO
            why = f": {event.why}" if event.why else ""
            logger.log(level, "endpoint %s %s%s", event.endpoint.name, event.after.label, why)
