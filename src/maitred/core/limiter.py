"""Limits kept: everything is checked first and then taken, so what is refused costs nothing.

Tokens are estimated when a request comes in and settled by what was used when it is over; until then a budget
counts the estimate. Memory is bounded: holders that are idle and full are forgotten, and of guests, whom no
setting names, those beyond a bound share one.
"""

from __future__ import annotations

from collections import OrderedDict

from maitred.core.buckets import MINUTE_S, SLACK_S
from maitred.core.holders import Hold, Holder, Party, refusal
from maitred.core.limits import (
    FREE,
    Accounts,
    Charge,
    Charges,
    Limits,
    Periods,
    Price,
    Spent,
)
from maitred.core.words import Usage

HOLDERS_MAX = 65_536
"""Where so many are known, new guests share what one of them may take."""
GUEST, CROWD = "guest ", "guest *"
IDLE_MAX = 1024
"""Up to so many holders none is forgotten: the few of a usual house are there to stay."""
DAY_S = 86_400.0
NEVER = float("inf")


class Limiter:
    """All holders of a gateway. A holder's name is its kind, a space and its own name: `tenant team-a`."""

    def __init__(self) -> None:
        self._holders: OrderedDict[str, Holder] = OrderedDict()
        self._periods = Periods(0, 0, NEVER, NEVER)
        self._charges = Charges(0, 0, {})
        self._charges_before: Charges | None = None
        self._edition = object()  # another, once what parties have found may not hold any more

    def take(self, party: Party, prompt_tokens: int, output_tokens: int, price: Price, now: float) -> Hold:
        """Take a request's estimate from all its holders, or raise Refusal and take nothing."""
        if now >= self._periods.day_ends_at:
            self._turn_calendar(now)
        tokens = prompt_tokens + output_tokens
        money = 0 if price is FREE else price.of(prompt_tokens, 0, output_tokens)
        amounts = (1, tokens, prompt_tokens, output_tokens)
        fits, full_by = True, now + MINUTE_S + SLACK_S
        holders = party.holders if party.edition is self._edition else self._find(party, now)
        for holder in holders:
            if holder.running >= holder.most:
                fits = False
            if holder.budgets and holder.over_budget(tokens, money) is not None:
                fits = False
            holder.running += 1
            holder.reserved_tokens += tokens
            if money:
                holder.reserved_money += money
            for bucket in holder.buckets:
                bucket.was_at = at = bucket.full_at
                amount = amounts[bucket.kind]
                if at < now:  # noqa: PLR1730 - a call takes ten times as long
                    at = now
                bucket.full_at = at = at + amount * bucket.unit_s
                if at > full_by and amount:
                    fits = False
        if not fits:
            for holder in holders:
                holder.running -= 1
                holder.reserved_tokens -= tokens
                holder.reserved_money -= money
                for bucket in holder.buckets:
                    bucket.full_at = bucket.was_at
            raise refusal(holders, amounts, money, now)
        return Hold(holders, amounts, price, money)

    def settle(self, hold: Hold, used: Usage | None, now: float) -> None:
        """Put what was used in the place of the estimate, and charge it. Only the first call does anything.

        None: it never reached an engine, and all is given back, the request too. Where nobody knows how long
        the prompt was (not `exact`), the estimate of it stands.
        """
        if not hold.open:
            return
        hold.open = False
        too_much, money = hold.amounts, hold.money
        _, reserved, prompt, output = too_much
        if used is not None:
            prompt_tokens, output_tokens = used.prompt_tokens, used.output_tokens
            if not used.exact and not prompt_tokens:
                prompt_tokens = prompt
            tokens = prompt_tokens + output_tokens
            too_much = (0, reserved - tokens, prompt - prompt_tokens, output - output_tokens)
            if now >= self._periods.day_ends_at:
                self._turn_calendar(now)
        for holder in hold.holders:
            holder.running -= 1
            holder.reserved_tokens -= reserved
            if money:
                holder.reserved_money -= money
            for bucket in holder.buckets:
                if units := too_much[bucket.kind]:
                    if units < 0 and bucket.full_at < now:  # more was used than was taken: maybe a debt
                        bucket.full_at = now
                    bucket.full_at -= units * bucket.unit_s
            if used is not None and holder.budgets:
                cost = hold.price.of(prompt_tokens, used.cached_tokens, output_tokens)
                self._charge(holder, tokens, cost)

    # -- accounts ---------------------------------------------------------------------------------

    def spent(self, name: str) -> Spent:
        """What this holder has spent so far, for whoever watches, from any thread."""
        holder = self._holders.get(name)
        return Spent() if holder is None else holder.spent

    def follow(self, periods: Periods) -> None:
        """Go with the calendar; a day or month that is over leaves nothing spent. It never goes back."""
        before = self._periods
        if periods.day < before.day:
            return
        self._periods = periods
        if periods.day == before.day:
            return
        if self._charges.by_holder:
            self._charges_before = self._charges
        self._charges = Charges(periods.day, periods.month, {})
        for holder in self._holders.values():
            holder.spent.tokens_per_day = holder.spent.money_per_day = 0
            if periods.month != before.month:
                holder.spent = Spent()

    def add(self, accounts: Accounts, now: float) -> None:
        """Count what was spent elsewhere, as far as it is of this day and month."""
        self._turn_calendar(now)
        today, this_month = accounts.day == self._periods.day, accounts.month == self._periods.month
        for name, more in accounts.spent.items():
            spent = self._holder(name, None, now).spent
            if today:
                spent.tokens_per_day += more.tokens_per_day
                spent.money_per_day += more.money_per_day
            if this_month:
                spent.tokens_per_month += more.tokens_per_month
                spent.money_per_month += more.money_per_month

    def charged(self) -> list[Charges]:
        """What was charged since it was last asked, of this day and of the one before."""
        before, self._charges_before = self._charges_before, None
        charges, self._charges = self._charges, Charges(self._periods.day, self._periods.month, {})
        return [each for each in (before, charges) if each is not None and each.by_holder]

    # -- parts ------------------------------------------------------------------------------------

    def _find(self, party: Party, now: float) -> list[Holder]:
        """The holders of a party, for it to keep; unless one shares a crowd's, and is to leave it soon."""
        edition = self._edition
        holders = [self._holder(name, limits, now) for name, limits in party.limited]
        if all(holder.name == name for holder, (name, _) in zip(holders, party.limited, strict=True)):
            party.holders, party.edition = holders, edition
        return holders

    def _holder(self, name: str, limits: Limits | None, now: float) -> Holder:
        """The holder of this name, living by these limits; one for all guests of a crowd."""
        holder = known = self._holders.get(name)
        if holder is None:
            if len(self._holders) >= IDLE_MAX:
                self._forget(now)
            if len(self._holders) >= HOLDERS_MAX and name.startswith(GUEST):
                name = CROWD
            holder = self._holders.setdefault(name, Holder(name))
        if limits is not None and holder.limits is not limits:
            changed = holder.adopt(limits, now)
            if changed and known is not None:
                self._edition = object()
        return holder

    def _forget(self, now: float) -> None:
        """Look at two holders: so that, with each new one, those that are idle go by and by."""
        for _ in range(2):
            name, holder = self._holders.popitem(last=False)
            if holder.idle(now):
                self._edition = object()
            else:
                self._holders[name] = holder

    def _charge(self, holder: Holder, tokens: int, money: int) -> None:
        spent = holder.spent
        spent.tokens_per_day += tokens
        spent.tokens_per_month += tokens
        spent.money_per_day += money
        spent.money_per_month += money
        charge = self._charges.by_holder.get(holder.name)
        if charge is None:
            charge = self._charges.by_holder[holder.name] = Charge()
        charge.tokens += tokens
        charge.money += money

    def _turn_calendar(self, now: float) -> None:
        """Begin the next day by ourselves when nobody has said so; who tells us may be late."""
        periods = self._periods
        if now < periods.day_ends_at:
            return
        days = 1 + int((now - periods.day_ends_at) // DAY_S)
        month_over = now >= periods.month_ends_at
        self.follow(
            Periods(
                periods.day + days,
                periods.month + month_over,
                periods.day_ends_at + days * DAY_S,
                NEVER if month_over else periods.month_ends_at,
            )
        )
