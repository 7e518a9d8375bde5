"""The settings, each written down once: its name in the file, its kind, its default and what it means.

The loader, `config show`, the JSON Schema, the environment's names and the test of the documentation are
all derived from these classes (`setting.py` says how). Values are in base units: `_s` is float seconds,
`_bytes` is int bytes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from msgspec import Struct, structs

from maitred.config.auth import Auth, Store
from maitred.config.cache import Cache
from maitred.config.flow import Accounts, Band, Budget, ModelLimits, Price, Tenant, core_limits
from maitred.config.kinds import (
    ADDRESS,
    DNS,
    ENDPOINT,
    FILE,
    GRACE,
    HOST,
    NUMBER,
    ORIGIN,
    PERCENT,
    SIZE,
    SWITCH,
    TEXT,
    TIMEOUT,
    VERSION,
    Address,
    choice,
    number_or,
)
from maitred.config.mcp import Mcp
from maitred.config.place import Engine
from maitred.config.responses import Responses
from maitred.config.routing import ROUTING_FORMS, Composition
from maitred.config.secret import SECRET, Secret
from maitred.config.setting import Forms, Listed, Mapped, Setting
from maitred.config.simulate import Simulate
from maitred.core.endpoints import name_of
from maitred.core.fairness import FAIRNESS, ORDER
from maitred.core.recipe import Recipe
from maitred.core.saturation import SATURATION
from maitred.core.words import HealthSettings, PoolSettings, Settings

QUEUE_PER_PLACE = 8
"""Requests that may wait for each one that may run, where `queue.requests` is not set."""

STEERING_FIELDS = (
    "kv_transfer_params",
    "ec_transfer_params",
    "bootstrap_host",
    "bootstrap_port",
    "bootstrap_room",
    "bootstrap_pair_key",
    "priority",
    "cache_salt",
    "extra_key",
    "request_id",
    "rid",
    "session_id",
    "session_params",
    "chat_template",
    "chat_template_kwargs.chat_template",
    "chat_template_kwargs.tokenize",
    "vllm_xargs",
    "custom_labels",
    "custom_logit_processor",
    "lora",
    "lora_path",
    "lora_request",
    "id_slot",
    "data_parallel_rank",
    "routed_dp_rank",
    "disagg_prefill_dp_rank",
    "disaggregated_params",
)
"""Members of a request by which a client could steer the engine, and so other people's requests.

A dot leads into an object. Template arguments of these names take the place of the engine's own.
"""

_POOL = PoolSettings()
_HEALTH = HealthSettings()
_MIB = 1024 * 1024


class Listen(Struct, frozen=True):
    """Where clients connect."""

    data: Annotated[
        Address, Setting("data", ADDRESS, "Address of the API. Beyond loopback `auth` must be set.")
    ] = Address("127.0.0.1", 8000)


class Admin(Struct, frozen=True):
    """Where the operator looks."""

    listen: Annotated[
        Address,
        Setting(
            "listen", ADDRESS, "Address of metrics and status. Beyond loopback `admin.token` must be set."
        ),
    ] = Address("127.0.0.1", 9000)
    token: Annotated[
        Secret | None,
        Setting(
            "token",
            SECRET,
            "What callers of the admin port must know, as `{env: NAME}` or `{file: PATH}`; "
            "without it nothing can be changed there.",
            "not set",
        ),
    ] = None
    hosts: Annotated[
        tuple[str, ...],
        Setting(
            "hosts",
            Listed(HOST),
            "Names the admin port is reached by, besides addresses, `localhost` and this machine's own name.",
        ),
    ] = ()


class Queue(Struct, frozen=True):
    """How much of a model's load may wait, and how long."""

    wait_s: Annotated[
        float, Setting("wait", TIMEOUT, "Longest time a request waits for a place before it is refused.")
    ] = _POOL.queue_wait_s
    requests_max: Annotated[
        int,
        Setting(
            "requests",
            NUMBER,
            "Most requests waiting at once.",
            f"{QUEUE_PER_PLACE} x `cap`, {_POOL.queue_requests_max} with `auto`",
        ),
    ] = 0
    bytes_max: Annotated[
        int, Setting("bytes", SIZE, "Most memory the bodies of waiting requests may take.")
    ] = _POOL.queue_bytes_max


class Slo(Struct, frozen=True):
    """What counts as a good answer; goodput is counted against it."""

    ttft_s: Annotated[
        float | None,
        Setting("ttft", TIMEOUT, "Time to first token an answer must keep to be good.", "no goal"),
    ] = None
    tpot_s: Annotated[
        float | None,
        Setting("tpot", TIMEOUT, "Time per later token an answer must keep to be good.", "no goal"),
    ] = None


class EndpointsFile(Struct, frozen=True):
    """Endpoints kept in a file, which is watched."""

    file: Annotated[Path, Setting("file", FILE, "A list of URLs.")]


class EndpointsDns(Struct, frozen=True):
    """Endpoints at all the addresses that DNS has for a name. `dns` is a URL with the name."""

    dns: Annotated[str, Setting("dns", DNS, "The name and port, as a URL.")]
    ttl_s: Annotated[float, Setting("ttl", TIMEOUT, "How long the addresses are good for.")] = 10.0


class TokensFolder(Struct, frozen=True):
    """A model's own tokenizer and chat template, as they are published with it."""

    folder: Annotated[
        Path,
        Setting(
            "folder", FILE, "Where `tokenizer.json`, `tokenizer_config.json` or `chat_template.jinja` are."
        ),
    ]


class Model(Struct, frozen=True):
    """One model and the engines that serve it. `served_as` and `queue.requests_max` are always filled in."""

    name: Annotated[str, Setting("name", TEXT, "The name clients say; unique over names and aliases.")]
    endpoints: Annotated[
        tuple[str, ...] | EndpointsFile | EndpointsDns,
        Setting(
            "endpoints",
            Forms(
                (Listed(ENDPOINT, length_min=1, distinct=True), EndpointsFile, EndpointsDns),
                "a list of URLs, {file: PATH} or {dns: http://name:port}",
            ),
            "URLs of its engines: scheme, host and port, nothing else. Or `{file: PATH}`, a watched file; or "
            "`{dns: URL, ttl: 10s}`, all addresses of a name.",
        ),
    ]
    aliases: Annotated[tuple[str, ...], Setting("aliases", Listed(TEXT), "Other names clients may say.")] = ()
    served_as: Annotated[str, Setting("served_as", TEXT, "The name the engines know it by.", "`name`")] = ""
    routing: Annotated[
        str | Composition,
        Setting(
            "routing",
            ROUTING_FORMS,
            "How the endpoint of a request is chosen: by the policy of this name, or one made as said here.",
        ),
    ] = "default"
    prefill_rate: Annotated[
        int,
        Setting(
            "prefill_rate",
            NUMBER,
            "Prompt tokens that one engine reads in a second, until its answers have shown it. "
            "`maitred simulate profiles` says what is known of a GPU.",
        ),
    ] = int(_POOL.speed)
    engines: Annotated[
        tuple[Engine, ...], Setting("engines", Listed(Engine), "Endpoints of which more is to be said.")
    ] = ()
    cap: Annotated[
        int,
        Setting(
            "cap",
            number_or("auto"),
            "Most requests running at one endpoint at once; `auto` finds it by how the engines do.",
        ),
    ] = _POOL.cap
    saturation: Annotated[
        str,
        Setting(
            "saturation",
            choice(*SATURATION),
            "How it is judged whether an endpoint has room.",
        ),
    ] = _POOL.saturation
    kv_reserve: Annotated[
        float,
        Setting("kv_reserve", PERCENT, "Part of a predicted answer for which room in the KV cache is kept."),
    ] = _POOL.kv_reserve
    fairness: Annotated[
        str,
        Setting("fairness", choice(*FAIRNESS), "How tenants of a band take turns."),
    ] = _POOL.fairness
    order: Annotated[str, Setting("order", choice(*ORDER), "Which of a tenant's requests is the next.")] = (
        _POOL.order
    )
    tokens: Annotated[
        str | TokensFolder | None,
        Setting(
            "tokens",
            Forms((choice("engine", "render"), TokensFolder), "engine, render or {folder: PATH}"),
            "Who tells the token ids of prompts: `{folder: PATH}`, with the model's `tokenizer.json` and "
            "chat template; `engine`, by its `/tokenize`; `render`, by vLLM's render endpoints.",
            "nobody",
        ),
    ] = None
    responses: Annotated[
        str,
        Setting(
            "responses",
            choice("chat", "native"),
            "How its engines are asked for responses that the gateway keeps: by chat completions, or by a "
            "Responses API of their own.",
        ),
    ] = "chat"
    queue: Annotated[Queue, Setting("queue", Queue)] = Queue()
    slo: Annotated[Slo, Setting("slo", Slo)] = Slo()
    limits: Annotated[ModelLimits, Setting("limits", ModelLimits)] = ModelLimits()
    budget: Annotated[Budget, Setting("budget", Budget)] = Budget()
    price: Annotated[Price, Setting("price", Price)] = Price()
    cache: Annotated[Cache, Setting("cache", Cache)] = Cache()

    def __post_init__(self) -> None:
        """Fill in the defaults that follow from other settings. ValueError for an engine it does not have."""
        for engine in self.engines:
            if isinstance(self.endpoints, tuple) and engine.endpoint not in self.endpoints:
                raise ValueError(f"{engine.endpoint} in engines is none of its endpoints")
        if not self.served_as:
            structs.force_setattr(self, "served_as", self.name)
        if not self.queue.requests_max:
            requests_max = QUEUE_PER_PLACE * self.cap or _POOL.queue_requests_max
            queue = structs.replace(self.queue, requests_max=requests_max)
            structs.force_setattr(self, "queue", queue)

    @property
    def policy(self) -> str | Recipe:
        """How the endpoint of a request is chosen, as the core takes it."""
        return self.routing.core() if isinstance(self.routing, Composition) else self.routing


class Http(Struct, frozen=True):
    """Limits on what clients send and how they take it."""

    body_bytes_max: Annotated[int, Setting("body_max", SIZE, "Largest request body.")] = 64 * _MIB
    inflated_bytes_max: Annotated[
        int,
        Setting(
            "inflated_max",
            SIZE,
            "Largest request body after unpacking gzip; `http.body_max` bounds plain ones.",
        ),
    ] = 16 * _MIB
    head_bytes_max: Annotated[
        int, Setting("head_max", SIZE, "Largest request head: request line and all headers.")
    ] = 64 * 1024
    headers_max: Annotated[int, Setting("headers_max", NUMBER, "Most headers in one request.")] = 128
    head_timeout_s: Annotated[
        float, Setting("head_timeout", TIMEOUT, "The whole request head must arrive within this.")
    ] = 10.0
    body_timeout_s: Annotated[
        float, Setting("body_timeout", TIMEOUT, "Longest silence while a request body is read.")
    ] = 30.0
    keep_alive_s: Annotated[
        float,
        Setting(
            "keep_alive",
            TIMEOUT,
            "How long an idle client connection stays open; above load balancers' usual 600 s.",
        ),
    ] = 620.0
    write_timeout_s: Annotated[
        float,
        Setting("write_timeout", TIMEOUT, "Longest time a client may take no byte while bytes wait for it."),
    ] = 60.0
    cors: Annotated[
        tuple[str, ...],
        Setting("cors", Listed(ORIGIN), "Origins of web pages that may call the API from a browser."),
    ] = ()


class Trust(Struct, frozen=True):
    """What clients may set although it steers the engine."""

    fields: Annotated[
        tuple[str, ...],
        Setting(
            "fields",
            Listed(choice(*STEERING_FIELDS)),
            "Members of a request that are let through although a client can steer the engine by them.",
        ),
    ] = ()


class Media(Struct, frozen=True):
    """What engines may fetch for a client."""

    domains: Annotated[
        tuple[str, ...],
        Setting(
            "domains",
            Listed(HOST),
            "Hosts from which engines may fetch images and the like; each with all names below it.",
        ),
    ] = ()


class Upstream(Struct, frozen=True):
    """How the engines are spoken to."""

    connect_s: Annotated[
        float, Setting("connect", TIMEOUT, "Longest wait for a connection to an engine.")
    ] = 2.0
    first_byte_s: Annotated[
        float, Setting("first_byte", TIMEOUT, "Longest wait for the first byte of an engine's answer.")
    ] = 600.0
    idle_s: Annotated[float, Setting("idle", TIMEOUT, "Longest silence in a running answer.")] = 300.0
    keep_alive_s: Annotated[
        float,
        Setting(
            "keep_alive",
            TIMEOUT,
            "How long an idle engine connection is reused; below uvicorn's 5 s, at which it closes.",
        ),
    ] = 4.0
    attempts: Annotated[
        int,
        Setting(
            "attempts", NUMBER, "Most seatings of one request while nothing of its answer has been delivered."
        ),
    ] = Settings().attempts_max
    hold_s: Annotated[
        float,
        Setting(
            "hold",
            GRACE,
            "How long a stream's start is held back before its first content, "
            "so that an early failure can still be retried.",
        ),
    ] = 1.0
    hold_bytes: Annotated[
        int,
        Setting("hold_bytes", SIZE, "How much of a stream's start is held back before its first content."),
    ] = 64 * 1024


class Health(Struct, frozen=True):
    """When an engine gets no more work, and how it comes back."""

    failures_max: Annotated[
        int, Setting("failures", NUMBER, "Failures in a row, each its own fault, that eject an endpoint.")
    ] = _HEALTH.failures_max
    slow_start_s: Annotated[
        float, Setting("slow_start", GRACE, "How long a returned endpoint takes to come to its full share.")
    ] = _HEALTH.slow_start_s
    generate: Annotated[
        bool, Setting("generate", SWITCH, "Whether an engine must generate a token before it is given work.")
    ] = True
    probe_timeout_s: Annotated[float, Setting("probe_timeout", TIMEOUT, "Longest wait for that token.")] = (
        30.0
    )
    quarantine_s: Annotated[
        float,
        Setting(
            "quarantine", GRACE, "How long a request is refused that was running when engines died twice."
        ),
    ] = _HEALTH.quarantine_s


class Scrape(Struct, frozen=True):
    """How the engines' own metrics are read."""

    period_s: Annotated[float, Setting("period", TIMEOUT, "Time from one reading to the next.")] = 5.0
    timeout_s: Annotated[float, Setting("timeout", TIMEOUT, "Longest wait for one reading.")] = 2.0


class Drain(Struct, frozen=True):
    """What happens after SIGTERM."""

    notice_s: Annotated[
        float,
        Setting(
            "notice",
            GRACE,
            "How long requests are still served as usual after SIGTERM while `/readyz` already says no.",
        ),
    ] = 0.0
    limit_s: Annotated[
        float, Setting("limit", GRACE, "How long answers still running after that may take.")
    ] = 120.0
    grace_s: Annotated[
        float | None,
        Setting(
            "grace",
            TIMEOUT,
            "How long the platform waits before it kills the process; `notice` and `limit` must fit into it.",
            "unknown",
        ),
    ] = None


class Log(Struct, frozen=True):
    """What is written to standard error."""

    format: Annotated[
        str, Setting("format", choice("human", "json"), "Lines for people, or one JSON object a line.")
    ] = "human"
    level: Annotated[
        str,
        Setting(
            "level", choice("debug", "info", "warning", "error"), "The least serious line still written."
        ),
    ] = "info"
    access: Annotated[bool, Setting("access", SWITCH, "Whether every request leaves a line.")] = True


class Journal(Struct, frozen=True):
    """The recording of every decision, for replay."""

    file: Annotated[Path, Setting("file", FILE, "Where the journal is written.")]
    bytes_max: Annotated[int, Setting("bytes_max", SIZE, "Largest size of the journal.")] = 256 * _MIB


class Decisions(Struct, frozen=True):
    """Which choices of an endpoint are kept for whoever asks why."""

    keep: Annotated[int, Setting("keep", NUMBER, "Most decisions kept; 16 MiB bound them, too.")] = 1000
    sample: Annotated[
        float,
        Setting(
            "sample",
            PERCENT,
            "Part of the requests whose decisions are kept, beside those that ask for a receipt.",
        ),
    ] = 0.01


class Config(Struct, frozen=True):
    """The whole tree. Either `models` or `endpoints` names the engines; the loader sees to it."""

    version: Annotated[int, Setting("version", VERSION, "Version of this format; required in a file.")] = 1
    listen: Annotated[Listen, Setting("listen", Listen)] = Listen()
    admin: Annotated[Admin, Setting("admin", Admin)] = Admin()
    store: Annotated[Store, Setting("store", Store)] = Store()
    auth: Annotated[
        str | Auth | None,
        Setting(
            "auth",
            Forms((choice("none"), Auth), "none, or a mapping such as {keys: store, pepper: …}", nested=True),
            "`none` lets everybody in who can reach the port; the settings below say who else is.",
            "not set",
        ),
    ] = None
    endpoints: Annotated[
        tuple[str, ...],
        Setting(
            "endpoints",
            Listed(ENDPOINT, distinct=True),
            "URLs of engines, whose models are learned; instead of `models`.",
        ),
    ] = ()
    models: Annotated[
        tuple[Model, ...], Setting("models", Listed(Model), "The models served; instead of `endpoints`.")
    ] = ()
    zone: Annotated[
        str | None,
        Setting(
            "zone",
            TEXT,
            "Where this gateway is. Endpoints of another zone are for when those of this one are full.",
            "anywhere",
        ),
    ] = None
    bands: Annotated[
        tuple[Band, ...], Setting("bands", Listed(Band), "Priority classes, the first served first.")
    ] = ()
    tenants: Annotated[dict[str, Tenant], Setting("tenants", Mapped(Tenant), "Tenants by name.")] = {}
    default_tenant: Annotated[Tenant, Setting("default_tenant", Tenant)] = Tenant()
    accounts: Annotated[Accounts, Setting("accounts", Accounts)] = Accounts()
    mcp: Annotated[Mcp, Setting("mcp", Mcp)] = Mcp()
    responses: Annotated[Responses, Setting("responses", Responses)] = Responses()
    http: Annotated[Http, Setting("http", Http)] = Http()
    trust: Annotated[Trust, Setting("trust", Trust)] = Trust()
    media: Annotated[Media, Setting("media", Media)] = Media()
    upstream: Annotated[Upstream, Setting("upstream", Upstream)] = Upstream()
    health: Annotated[Health, Setting("health", Health)] = Health()
    scrape: Annotated[Scrape, Setting("scrape", Scrape)] = Scrape()
    drain: Annotated[Drain, Setting("drain", Drain)] = Drain()
    log: Annotated[Log, Setting("log", Log)] = Log()
    simulate: Annotated[Simulate, Setting("simulate", Simulate)] = Simulate()
    journal: Annotated[Journal | None, Setting("journal", Journal, derived="off")] = None
    decisions: Annotated[Decisions, Setting("decisions", Decisions)] = Decisions()

    def core_settings(self) -> Settings:
        """The part the core decides by. A pool is named after its model; learned models get the default."""
        pools = {
            model.name: PoolSettings(
                cap=model.cap,
                queue_requests_max=model.queue.requests_max,
                queue_bytes_max=model.queue.bytes_max,
                queue_wait_s=model.queue.wait_s,
                routing=model.policy,
                saturation=model.saturation,
                fairness=model.fairness,
                order=model.order,
                kv_reserve=model.kv_reserve,
                ttft_s=model.slo.ttft_s,
                tpot_s=model.slo.tpot_s,
                limits=core_limits(model.limits, model.budget),
                price=model.price.core(),
                speed=float(model.prefill_rate),
                places={name_of(model.name, engine.endpoint): engine.core() for engine in model.engines},
                zone=self.zone or "",
            )
            for model in self.models
        }
        health = HealthSettings(
            failures_max=self.health.failures_max,
            slow_start_s=self.health.slow_start_s,
            quarantine_s=self.health.quarantine_s,
        )
        return Settings(
            pools=pools,
            bands=tuple(band.core() for band in self.bands) or Settings().bands,
            tenants={name: tenant.core() for name, tenant in self.tenants.items()},
            tenant=self.default_tenant.core(),
            attempts_max=self.upstream.attempts,
            health=health,
        )
