"""Who may take how much and who goes first: bands, tenants, limits, budgets and prices."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated

from msgspec import Struct, structs

from maitred.config.kinds import BUDGET, NUMBER, PERCENT, SWITCH, TEXT, TIMEOUT, USD, choice
from maitred.config.responses import TIERS, Kept
from maitred.config.setting import Listed, Setting
from maitred.core.limits import FREE, Limits
from maitred.core.limits import Price as CorePrice
from maitred.core.words import BandSettings, TenantSettings

NO_LIMIT = "no limit"
BAND = structs.replace(TEXT, example="chat")


class Rates(Struct, frozen=True):
    """How much at once and in a minute. A minute's worth may come in one burst."""

    requests_per_min: Annotated[
        int | None, Setting("requests_per_min", NUMBER, "Most requests in a minute.", NO_LIMIT)
    ] = None
    tokens_per_min: Annotated[
        int | None,
        Setting("tokens_per_min", NUMBER, "Most tokens in a minute, of prompts and answers.", NO_LIMIT),
    ] = None
    prompt_tokens_per_min: Annotated[
        int | None,
        Setting("prompt_tokens_per_min", NUMBER, "Most tokens of prompts in a minute.", NO_LIMIT),
    ] = None
    output_tokens_per_min: Annotated[
        int | None,
        Setting("output_tokens_per_min", NUMBER, "Most tokens of answers in a minute.", NO_LIMIT),
    ] = None
    concurrent: Annotated[
        int | None,
        Setting("concurrent", NUMBER, "Most requests at once, running or waiting.", NO_LIMIT),
    ] = None


class ModelLimits(Rates, frozen=True):
    """Bounds of a model: of all its requests together, and of each."""

    context: Annotated[
        int | None,
        Setting("context", NUMBER, "Most tokens of one prompt and its answer.", "what its engines say"),
    ] = None
    output: Annotated[
        int | None,
        Setting(
            "output",
            NUMBER,
            "Most tokens of one answer; more asked for is lowered to it, in whatever member it is said.",
            NO_LIMIT,
        ),
    ] = None
    output_default: Annotated[
        int | None,
        Setting(
            "output_default",
            NUMBER,
            "Tokens of an answer whose request names no bound.",
            "as the engine does",
        ),
    ] = None

    def __post_init__(self) -> None:
        """Refuse bounds that exclude each other."""
        bounds = (("output_default", self.output_default), ("output", self.output), ("context", self.context))
        written = [(name, bound) for name, bound in bounds if bound is not None]
        for (name, bound), (outer, most) in pairwise(written):
            if bound > most:
                raise ValueError(f"{name} ({bound}) must not be more than {outer} ({most})")


class Budget(Struct, frozen=True):
    """How much in a day and in a month, by UTC."""

    tokens_per_day: Annotated[
        int | None, Setting("tokens_per_day", NUMBER, "Most tokens in a day.", NO_LIMIT)
    ] = None
    tokens_per_month: Annotated[
        int | None, Setting("tokens_per_month", NUMBER, "Most tokens in a month.", NO_LIMIT)
    ] = None
    usd_per_day: Annotated[
        int | None, Setting("usd_per_day", BUDGET, "Most money in a day, by the models' `price`.", NO_LIMIT)
    ] = None
    usd_per_month: Annotated[
        int | None,
        Setting("usd_per_month", BUDGET, "Most money in a month, by the models' `price`.", NO_LIMIT),
    ] = None


class Price(Struct, frozen=True):
    """What a million tokens cost, in USD."""

    prompt: Annotated[int, Setting("prompt", USD, "USD for a million tokens of prompts.")] = 0
    cached: Annotated[
        int | None,
        Setting(
            "cached", USD, "USD for a million tokens of prompts that the engine knew already.", "`prompt`"
        ),
    ] = None
    output: Annotated[int, Setting("output", USD, "USD for a million tokens of answers.")] = 0

    def core(self) -> CorePrice:
        """As the core reckons."""
        cached = self.prompt if self.cached is None else self.cached
        price = CorePrice(self.prompt, cached, self.output)
        return price if price != FREE else FREE


class Band(Struct, frozen=True):
    """A priority class. Bands are served in the order of the list."""

    name: Annotated[str, Setting("name", BAND, "The name tenants and requests say.")]
    deadline_s: Annotated[
        float | None,
        Setting("deadline", TIMEOUT, "Longest time its requests wait for a place.", "`queue.wait`"),
    ] = None
    share_min: Annotated[
        float,
        Setting("share_min", PERCENT, "Part of the service it gets even while a band before it waits."),
    ] = 0.0
    preempt: Annotated[
        bool,
        Setting(
            "preempt",
            SWITCH,
            "Whether its waiting requests are put out where the queue is full and a band before it comes.",
        ),
    ] = True
    service_tiers: Annotated[
        tuple[str, ...],
        Setting(
            "service_tiers",
            Listed(choice(*TIERS)),
            "What a turn of the Responses API says as `service_tier` to ask for it.",
        ),
    ] = ()

    def core(self) -> BandSettings:
        """As the core reckons."""
        return BandSettings(self.name, self.deadline_s, self.share_min, self.preempt)


class Tenant(Struct, frozen=True):
    """One tenant: what part of the service is its, and how much of it."""

    weight: Annotated[int, Setting("weight", NUMBER, "Its part of a band's service against the others'.")] = 1
    bands: Annotated[
        tuple[str, ...],
        Setting("bands", Listed(TEXT), "Bands it may use; the first unless a request says another.", "all"),
    ] = ()
    limits: Annotated[Rates, Setting("limits", Rates)] = Rates()
    budget: Annotated[Budget, Setting("budget", Budget)] = Budget()
    mcp: Annotated[
        tuple[str, ...] | None,
        Setting("mcp", Listed(TEXT), "Labels of the MCP servers it may use; `[]` for none.", "all"),
    ] = None
    responses: Annotated[Kept, Setting("responses", Kept)] = Kept()

    def core(self) -> TenantSettings:
        """As the core reckons."""
        return TenantSettings(float(self.weight), self.bands, core_limits(self.limits, self.budget))


class Accounts(Struct, frozen=True):
    """How what was spent is kept."""

    period_s: Annotated[
        float,
        Setting(
            "period",
            TIMEOUT,
            "How often what was spent is written down; a killed process forgets what it charged since.",
        ),
    ] = 2.0


def core_limits(rates: Rates, budget: Budget) -> Limits:
    """As the core reckons, where 0 stands for no limit."""
    return Limits(
        rates.requests_per_min or 0,
        rates.tokens_per_min or 0,
        rates.prompt_tokens_per_min or 0,
        rates.output_tokens_per_min or 0,
        rates.concurrent or 0,
        budget.tokens_per_day or 0,
        budget.tokens_per_month or 0,
        budget.usd_per_day or 0,
        budget.usd_per_month or 0,
    )
