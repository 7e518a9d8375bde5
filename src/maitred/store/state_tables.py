"""The tables of what is remembered: conversations, items, responses, and of the background jobs and events.

Content stands last in its row, so that who looks only at what is before it does not read it. Some indexes are
only of rows in which there is something. Each database has its own way to say so, and the migrations say it.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, LargeBinary, String, Table, Text

from maitred.store.tables import metadata

NEVER_MS = 2**62
"""`expires_ms` of what never expires."""


conversations = Table(
    "conversations",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("tenant", String(256), nullable=False),
    Column("turn", String(64)),  # the response that may add to it, while there is one
    Column("created_ms", BigInteger, nullable=False),
    Column("expires_ms", BigInteger, nullable=False, index=True),
    Column("metadata", Text, nullable=False),
)

responses = Table(
    "responses",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("tenant", String(256), nullable=False),
    Column("model", String(256), nullable=False),
    Column("root_id", String(64), nullable=False),
    Column("previous_id", String(64)),
    Column("conversation_id", String(64)),
    Column("conversation_seq", BigInteger),  # where its items begin there
    Column("status", String(16), nullable=False),
    Column("reason", String(16)),
    Column("background", Boolean, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("expires_ms", BigInteger, nullable=False, index=True),
    Column("maker", String(32)),  # the gateway whose it is while it is being made
    Column("lease_ms", BigInteger),  # until when whoever makes it need not say that it lives
    Column("idempotency_key", String(256)),
    Column("digest", LargeBinary(32), nullable=False),
    Column("item_count", Integer, nullable=False),
    Column("item_bytes", BigInteger, nullable=False),
    Column("snapshot", Text, nullable=False),
)
Index("ix_responses_root", responses.c.root_id, responses.c.expires_ms)
Index("ix_responses_lease", responses.c.lease_ms)
Index("ix_responses_key", responses.c.tenant, responses.c.idempotency_key, unique=True)

items = Table(
    "items",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("tenant", String(256), nullable=False),
    Column("response_id", String(64)),
    Column("conversation_id", String(64)),
    Column("seq", BigInteger, nullable=False),
    Column("output", Boolean, nullable=False),
    Column("bytes", Integer, nullable=False),
    Column("data", Text, nullable=False),
)
"""An item is of a response, of a conversation, or of both, and is gone when it is of neither."""
Index("ix_items_response", items.c.response_id, items.c.seq)
Index("ix_items_conversation", items.c.conversation_id, items.c.seq, unique=True)

jobs = Table(
    "jobs",
    metadata,
    Column("response_id", String(64), primary_key=True),
    Column("tenant", String(256), nullable=False),
    Column("band", String(256), nullable=False),
    Column("waiting", Boolean, nullable=False),  # else somebody has taken it
    Column("attempts", Integer, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("expires_ms", BigInteger, nullable=False),
    Column("request", Text, nullable=False),
)
_j = jobs.c
Index("ix_jobs_next", _j.band, _j.waiting, _j.tenant, _j.expires_ms, _j.response_id)
Index("ix_jobs_expires", jobs.c.expires_ms)

events = Table(
    "events",
    metadata,
    Column("response_id", String(64), primary_key=True),
    Column("last", BigInteger, primary_key=True, autoincrement=False),
    Column("first", BigInteger, nullable=False),
    Column("tenant", String(256), nullable=False),
    Column("created_ms", BigInteger, nullable=False, index=True),
    Column("data", Text, nullable=False),
)
