"""The vocabulary: what a request, a ticket, a leg and an endpoint are, and what the core may answer.

Values are frozen Structs; tickets, legs and endpoints are mutable state that only the core changes. Times
are float seconds on the shell's monotonic clock; token counts are ints.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from maitred.core.holders import Hold
from maitred.core.limits import FREE, UNLIMITED, Accounts, Limits, Periods, Price
from maitred.core.line import Line
from maitred.core.mutable import mutable
from maitred.core.outcome import FailureKind, Outcome
from maitred.core.receipt import Receipt
from maitred.core.recipe import Recipe
from maitred.core.tokens import NoTokens

NOTHING_CACHED: Mapping[str, int] = MappingProxyType({})
PROGRESS_TOKENS = 16
"""`progress` is told at multiples of this: by count, so that replays do not depend on how reads were cut."""


class Api(IntEnum):
    """The client API a request speaks; decides the shape of errors and what counts as content.

    `anthropic`: its clients expect Anthropic's shapes; all others expect OpenAI's. `generates`: its answers
    are written token by token.
    """

    CHAT = 0
    COMPLETIONS = 1
    EMBEDDINGS = 2
    MESSAGES = 3
    COUNT_TOKENS = 4
    RERANK = 5
    SCORE = 6
    CLASSIFY = 7
    POOLING = 8
    TOKENIZE = 9
    DETOKENIZE = 10
    RESPONSES = 11

    anthropic: bool
    generates: bool

    def __init__(self, _number: int) -> None:
        self.anthropic = self.name in {"MESSAGES", "COUNT_TOKENS"}
        self.generates = self.name in {"CHAT", "COMPLETIONS", "MESSAGES", "RESPONSES"}

    @property
    def label(self) -> str:
        """Name in metrics and logs."""
        return self.name.lower()


class Request(Struct, frozen=True, gc=False):
    """What the core needs to know of a request; its content never enters the core.

    `model` is the name the client said, `pool` the endpoints that serve it. `sequences` counts the answers
    asked for (n, best_of and prompt lists multiply). `body_bytes` is what waiting costs in memory. `adapter`
    is the LoRA adapter asked for, "" for the model itself. `fingerprint` is a keyed hash of model and body,
    by which the same request is known again; 0 where nobody made one.

    `prompt_tokens` of all its prompts, an estimate from its bytes unless `prompt_exact`. `output_tokens_max`:
    what one answer may have, 0 where nobody said. `band`: the name of its priority class, "" for the
    identity's first. `deadline_s`: the client gives up so long after its arrival. `ttft_s`: the time to first
    token it asked to be held to. `retry`: how often the client says it has tried before.

    `prefix`: chained keys of its prompt's bytes, each of all up to an end that `core/prefix.py` lists.
    `blocks`: the same of its tokens, of each `block_tokens`, where these are known; `untold`: why they are
    not, None where nobody was asked. `session`: what the client calls the conversation, "" for nothing.
    `receipt`: it is to be told why it went where it went.
    """

    id: str
    api: Api
    model: str
    pool: str
    stream: bool = False
    body_bytes: int = 0
    sequences: int = 1
    adapter: str = ""
    fingerprint: int = 0
    prompt_tokens: int = 0
    prompt_exact: bool = False
    output_tokens_max: int = 0
    band: str = ""
    deadline_s: float | None = None
    ttft_s: float | None = None
    retry: int = 0
    prefix: tuple[int, ...] = ()
    blocks: tuple[int, ...] = ()
    block_tokens: int = 0
    session: str = ""
    receipt: bool = False
    untold: NoTokens | None = None


class Identity(Struct, frozen=True, cache_hash=True):
    """Who asks, and what he may.

    `key` is the id of the key he came with, "" without one. `models` he may use, () for all; `bands` he may
    wait in, the first unless he asks for another, () for the first there is. `may_set` names what he may say
    of himself in headers, "tenant", "band", "slo", and whether he may ask for a "receipt". `limits` are those
    of the key alone; those of a tenant or a model are settings.
    """

    tenant: str = "anonymous"
    key: str = ""
    models: tuple[str, ...] = ()
    bands: tuple[str, ...] = ()
    may_set: tuple[str, ...] = ()
    limits: Limits = UNLIMITED


class Usage(Struct, frozen=True, gc=False):
    """Tokens of one answer. `exact` is False where the engine gave no figure and events were counted."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    exact: bool = True


class Failure(Struct, frozen=True, gc=False):
    """Why a leg failed: its kind, the engine's status if one came, and the wait the engine asked for.

    `final`: a part of the answer has left for the client, so nothing may be repeated. `lost`: a connection
    had broken under the request, whatever went wrong after that.
    """

    kind: FailureKind
    status: int = 0
    retry_after_s: float | None = None
    detail: str = ""
    final: bool = False
    lost: bool = False


class EndpointState(IntEnum):
    """Where an endpoint stands; `core/endpoints.py` holds the table of moves."""

    PROBING = 0
    READY = 1
    EJECTED = 2
    DRAINING = 3
    GONE = 4

    @property
    def label(self) -> str:
        """Name in metrics and logs."""
        return self.name.lower()


class Facts(Struct, frozen=True, gc=False):
    """What an engine says of itself; None is what it does not tell.

    `engine` is its kind ("vllm", "sglang", "llamacpp", "trtllm", ""). `kv_tokens`: tokens its KV cache holds.
    `slots`: sequences it runs at once. `adapters`: LoRA adapters it has loaded. `started_at`: wall time in
    seconds at which its process started; another one is another engine.
    """

    engine: str = ""
    model: str = ""
    context_tokens: int | None = None
    version: str = ""
    kv_tokens: int | None = None
    prefix_caching: bool | None = None
    slots: int | None = None
    adapters: tuple[str, ...] = ()
    started_at: float | None = None


NO_FACTS = Facts()


class Load(Struct, frozen=True, gc=False):
    """What an engine says of its work: sequences running and waiting; use of its KV cache, 0 to 1."""

    running: int = 0
    waiting: int = 0
    kv_use: float | None = None
    preemptions: int | None = None


SPEED_GUESS = 6000.0
"""Prompt tokens a second that an engine reads until it has shown its own speed: less than a current GPU."""


def reads_guess(speed: float = SPEED_GUESS) -> Line:
    """What is thought of an engine's first tokens before any was seen."""
    return Line(0.05, 1 / speed)


def writes_guess() -> Line:
    """What is thought of its later ones."""
    return Line(0.02, 0.0002)


@dataclass(slots=True, eq=False)  # made seldom, set all the time
class Endpoint:
    """One engine address. `name` is stable ("pool/host:port"); a return after a loss is a new incarnation.

    `running` is the ledger: legs now holding a place. `seated` counts legs ever given to it, `turn` is the
    number of the last one, `cold` that of the last of whose prompt nothing was cached anywhere, `begun` how
    many such there were lately, a fading count. `listed`: its address is in the set; `held`: the operator
    drains it. `failures` in a row are its own fault, the last one by the request `failed_by`; `ejections`
    counts them in a row too. `share` is the part of its places it may use, growing since `ready_at` after a
    return. `load` is what its metrics said at `observed_at`.

    `reserved`: tokens of its KV cache set aside. `unread`: tokens of streams that have told nothing yet.
    `rests_until`: it asked to be left alone. `kept`: the part of what it was thought to have cached that it
    had, by `thought` and `found` tokens, fading sums. `expected_tokens` and `found_tokens` are whole sums,
    by `judged` answers, of which for `told` ones the engine itself had told what it has. `cap`: places, where
    the settings leave that to us; it was changed at `cap_at`, and `busiest` is the most that ran since.

    `reads` predicts the seconds to a first token by the tokens to be read until then, `writes` those of each
    token after it by the streams that run; `speed` is the prompt tokens a second to reckon with. `busy_s`:
    how long its streams ran, all together, until `busy_at`. `tpot_s` is the geometric mean of the pace at
    which its `paced` streams were written, seconds a token. `slowness`: how many times as long as its fastest
    peer it takes to read or to write, 1 unless it is an outlier. `guess` is the speed that the operator
    thinks it has, `zone` where he says it is, "" for nowhere in particular.
    """

    name: str
    pool: str
    url: str
    state: EndpointState = EndpointState.PROBING
    incarnation: int = 0
    facts: Facts = NO_FACTS
    why: str = ""
    running: int = 0
    seated: int = 0
    turn: int = 0
    cold: int = 0
    begun: int = 0
    reading: dict[int, Leg] = field(default_factory=dict)
    read_since: float = 0.0
    listed: bool = True
    held: bool = False
    failures: int = 0
    failed_by: int = 0
    ejections: int = 0
    share: float = 1.0
    ready_at: float = 0.0
    load: Load | None = None
    observed_at: float = 0.0
    reserved: int = 0
    busiest: int = 0
    unread: int = 0
    rests_until: float = 0.0
    reads: Line = field(default_factory=reads_guess)
    writes: Line = field(default_factory=writes_guess)
    speed: float = SPEED_GUESS
    busy_s: float = 0.0
    busy_at: float = 0.0
    tpot_s: float = 0.0
    paced: int = 0
    slowness: float = 1.0
    guess: float = SPEED_GUESS
    zone: str = ""
    kept: float = 1.0
    thought: float = 0.0
    found: float = 0.0
    expected_tokens: int = 0
    found_tokens: int = 0
    judged: int = 0
    told: int = 0
    cap: int = 0
    cap_at: float = 0.0


class LegPhase(IntEnum):
    """A leg's life; only SEATED to ANSWERED hold a place at the endpoint."""

    SEATED = 0
    SENT = 1
    ANSWERED = 2
    OVER = 3


@mutable
class Leg(Struct, eq=False):
    """One endpoint's part of a ticket, holding one place there from Go to leave, fail or finish.

    `number` counts the legs of a gateway from 1, `attempt` the seatings of the ticket from 1.
    `output_tokens` is the engine's output so far; `reserved` the tokens of KV cache it holds, `fresh` those
    of its prompt that were not cached, `unread` the same until the first token shows that they were read,
    `ahead` those to be read before them, `read_at` when all are thought to be. `busy_s` is its endpoint's at
    the first token. `thought`: tokens of its prompt that the index has for its endpoint, -1 where nobody
    asked it; `exact`: by what the engine tells. `receipt` says why it is this endpoint, where the request
    asks for that.
    """

    number: int
    ticket: Ticket
    endpoint: Endpoint
    incarnation: int
    attempt: int
    seated_at: float
    thought: int = -1
    exact: bool = False
    fresh: int = 0
    reserved: int = 0
    phase: LegPhase = LegPhase.SEATED
    sent_at: float = 0.0
    answered_at: float = 0.0
    output_tokens: int = 0
    unread: int = 0
    ahead: float = 0.0
    read_at: float = 0.0
    busy_s: float = 0.0
    receipt: Receipt | None = None


class Phase(IntEnum):
    """A ticket's life."""

    QUEUED = 0
    DISPATCHED = 1
    ENDED = 2


@mutable
class Ticket(Struct, eq=False):
    """One request inside the house, from accept to finish.

    `queue_deadline` is the instant after which waiting is over: `give_up_at`, by the settings and the client,
    or what leaves a goal for the first token within reach. `due_at` is the same without the client's word,
    for the order by deadlines. `excluded` names the endpoints that failed this ticket, `blamed` is the last
    of them that was blamed for an error of its own wording; `lane` is the same for tickets that may sit at
    the same endpoints. `outcome` is set exactly once.

    `band` is the priority class, `rank` its number from the highest, `weight` the tenant's. `prompt_tokens`
    is the best guess at its prompt, `fresh` at what of that has to be read, `expected` at its answers, `need`
    the KV cache to set aside, in tokens; `ttft_s` the goal for its first token, 0 for none. `cached`: by
    endpoint name, tokens of its prompt that are thought to be in the cache there; `home` is where the most
    is, "" where nobody has much; `reuse` the part of all prompts that caches had lately. `flow` is whom its
    service was `charged` to. `hold` is what it has taken of limits.
    """

    request: Request
    identity: Identity
    arrival: float
    queue_deadline: float
    due_at: float = 0.0
    give_up_at: float = 0.0
    band: str = "default"
    weight: float = 1.0
    prompt_tokens: int = 0
    expected: float = 0.0
    need: int = 0
    lane: tuple[str, ...] = ()
    fresh: int = 0
    cached: Mapping[str, int] = NOTHING_CACHED
    home: str = ""
    reuse: float = 0.0
    rank: int = 0
    ttft_s: float = 0.0
    phase: Phase = Phase.QUEUED
    legs: Sequence[Leg] = ()
    attempts: int = 0
    excluded: tuple[str, ...] = ()
    blamed: Endpoint | None = None
    outcome: Outcome | None = None
    flow: Any = None
    charged: float = 0.0
    hold: Hold | None = None


class Go(Struct, frozen=True, gc=False):
    """Effect: the ticket is seated; send it to these legs."""

    ticket: Ticket
    legs: Sequence[Leg]


class Drop(Struct, frozen=True, gc=False):
    """Effect: this leg is over for the core; abort what still runs for it."""

    leg: Leg


class Stop(Struct, frozen=True, gc=False):
    """Effect: the core ended the ticket; tell its client."""

    ticket: Ticket
    outcome: Outcome
    retry_after_s: float | None


Effect = Go | Drop | Stop


class Abilities(Struct, frozen=True):
    """What the shell can do; the core plans nothing else."""

    retry: bool = True


class Place(Struct, frozen=True):
    """What the operator says of one endpoint: its zone; prompt tokens it reads a second, 0 for unsaid."""

    zone: str = ""
    speed: float = 0.0


class PoolSettings(Struct, frozen=True):
    """How one pool is run. `routing` names the policy that chooses, or says what it is made of.

    `cap`: requests at one endpoint at once.

    The queue is bounded three ways. `saturation` names the policy that says when an endpoint is full,
    `fairness` the one between tenants, `order` the one within a tenant. `kv_reserve` is the share of the
    predicted output for which KV cache is set aside. `ttft_s`, `tpot_s`: what answers are held to, seconds.
    `limits` bound the model as a whole; `price` is what its tokens cost. `speed` is thought of an endpoint
    until it has shown its own; `places` are those of which more is said, by their names. Endpoints of another
    `zone` than this gateway's are for when those of its own are full; "" where that does not matter.
    """

    cap: int = 256
    queue_requests_max: int = 2048
    queue_bytes_max: int = 256 * 1024 * 1024
    queue_wait_s: float = 30.0
    routing: str | Recipe = "default"
    saturation: str = "auto"
    fairness: str = "token"
    order: str = "fcfs"
    kv_reserve: float = 0.5
    ttft_s: float | None = None
    tpot_s: float | None = None
    limits: Limits = UNLIMITED
    price: Price = FREE
    speed: float = SPEED_GUESS
    places: Mapping[str, Place] = {}
    zone: str = ""


class BandSettings(Struct, frozen=True):
    """A priority class. Bands are served in the order of the settings.

    `deadline_s` bounds how long its requests wait (None: as the pool says). `share_min`: the part of the
    service that it gets although a higher band waits, 0 to 1. `preempt`: its waiting requests may be put
    out when the queue is full and a higher band comes.
    """

    name: str
    deadline_s: float | None = None
    share_min: float = 0.0
    preempt: bool = True


class TenantSettings(Struct, frozen=True):
    """One tenant: its part in each band by `weight`, the bands it may use (() for all), its own `limits`."""

    weight: float = 1.0
    bands: tuple[str, ...] = ()
    limits: Limits = UNLIMITED


class HealthSettings(Struct, frozen=True):
    """When an endpoint counts as ill, and how it comes back.

    `failures_max`: failures in a row, each its own fault, that eject it. `slow_start_s`: a returned one gets
    its full share after this. `quarantine_s`: how long a request that was there at two deaths is refused.
    """

    failures_max: int = 5
    slow_start_s: float = 30.0
    quarantine_s: float = 600.0


class Settings(Struct, frozen=True):
    """What the operator chose, whole and versioned: replaced by `update`, never changed.

    Pools not named in `pools` live by `default`, tenants not named in `tenants` by `tenant`. `accepting` is
    False while the house drains.
    """

    version: int = 0
    pools: dict[str, PoolSettings] = {}
    default: PoolSettings = PoolSettings()
    attempts_max: int = 2
    accepting: bool = True
    health: HealthSettings = HealthSettings()
    bands: tuple[BandSettings, ...] = (BandSettings("default"),)
    tenants: dict[str, TenantSettings] = {}
    tenant: TenantSettings = TenantSettings()


class Endpoints(Struct, frozen=True, tag=True):
    """Change: the whole set of addresses, pool -> URLs. What is missing drains and goes."""

    pools: dict[str, tuple[str, ...]]


class Probed(Struct, frozen=True, tag=True):
    """Change: an endpoint was asked how it is. `why` says what is wrong when `ok` is False.

    `refused`: nobody takes connections there any more, so what was answered there died.
    """

    endpoint: str
    ok: bool
    facts: Facts = Facts()
    why: str = ""
    refused: bool = False


class Observed(Struct, frozen=True, tag=True):
    """Change: an endpoint's metrics were read."""

    endpoint: str
    load: Load


class KvEvents(Struct, frozen=True, tag=True):
    """Change: an engine said what came into its cache and what left it, as keys of `Request.blocks`.

    `cleared`: first of all it has lost everything. `lost`: events were missed, so what was known is not sure.
    """

    endpoint: str
    stored: tuple[int, ...] = ()
    removed: tuple[int, ...] = ()
    cleared: bool = False
    lost: bool = False


class Held(Struct, frozen=True, tag=True):
    """Change: the operator takes an endpoint out (`held`), or lets it in again."""

    endpoint: str
    held: bool


class Reset(Struct, frozen=True, tag="Settings"):
    """Change: new settings are in force."""

    settings: Settings


Change = Endpoints | Probed | Observed | Held | KvEvents | Reset | Periods | Accounts
