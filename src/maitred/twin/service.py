"""What the twin serves: its model and adapters, and how a request becomes jobs at the engine."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from random import Random

from msgspec import Struct

from maitred.net.exchange import HttpExchange
from maitred.sim.engine import Engine
from maitred.sim.job import Job, Role
from maitred.sim.kv import CacheListener
from maitred.sim.profile import Profile
from maitred.twin import tokens
from maitred.twin.answers import Answer, Choice
from maitred.twin.bodies import Ask
from maitred.twin.book import Book, Plan
from maitred.twin.counts import Counts
from maitred.twin.errors import NOT_FOUND, Wrong, check_room, unknown_model
from maitred.twin.live import LiveEngine

NOT_ENABLED = "LoRA is not enabled: this profile has no room for adapters."


class Cached(Struct, frozen=True):
    """A job's whole text in packed tokens, and what else the keys of its blocks are made of."""

    text: bytes
    salt: str
    adapter: str


class Service:
    """The engine and its names. `seed` decides all texts; `clock` is the loop's, `wall` wall time.

    Answers that end by themselves have `mean_tokens` on average. `listener` hears of the cache.
    `context_tokens`: the most that a prompt and its answer may have together; vLLM would not start with a
    cache smaller than its context.
    """

    def __init__(
        self,
        profile: Profile,
        clock: Callable[[], float],
        wall: Callable[[], float],
        model: str = "",
        role: Role = Role.BOTH,
        seed: int = 0,
        mean_tokens: int = 200,
        listener: CacheListener | None = None,
    ) -> None:
        self.profile = profile
        self.context_tokens = profile.request_tokens_max
        self.model = model or profile.model
        self.wall = wall
        self._role = role
        self._listener = listener
        self._book = Book(seed, mean_tokens)
        self._seed = seed
        self._ids = Random()
        self._numbers = count(1)
        self.live = LiveEngine(self._engine(), clock, Counts())
        self.started_s = wall()
        self.adapters: dict[str, str] = {}  # name -> path
        self.asleep = False

    def settle(self, address: str) -> None:
        """It listens there: its ids follow from that too, or all twins would have the same."""
        self.live.name = f"maitred-twin-{address}"
        self._ids.seed(f"{self._seed} {address}")

    def restart(self) -> None:
        """Another process begins: nothing is cached, counted or loaded."""
        self.live.replace(self._engine(), Counts())
        self.started_s = self.wall()
        self.adapters.clear()
        self.asleep = False

    def _engine(self) -> Engine:
        return Engine(self.profile, self._role, progress_tokens=0, lazy=False, listener=self._listener)

    def unique(self) -> str:
        """Sixteen hexadecimal digits that no other request has."""
        return f"{self._ids.getrandbits(64):016x}"

    def answer(self, exchange: HttpExchange, ask: Ask, form: type[Answer]) -> Answer:
        """Answer a request in a form. Raises Wrong, and then nothing has happened."""
        self.find_model(ask)
        given = exchange.head.fields.get(b"x-request-id")
        ask.request_id = ask.request_id or (given or b"").decode("latin-1")
        return form(self.live, exchange, ask, self.unique(), int(self.wall()))

    def begin_answer(self, answer: Answer) -> None:
        """Hand an answer to the engine. Raises Wrong."""
        choices = self._choices(answer)
        answer.start(choices)
        most = max(choice.job.output_tokens for choice in choices)
        self.live.counts.asked(answer.ask.sequences, answer.ask.output_tokens_max or most)

    def find_model(self, ask: Ask) -> None:
        """See that the model is served; an adapter's name makes it one. Raises Wrong."""
        name = ask.model or self.model
        if name in self.adapters:
            ask.adapter = name
        elif name != self.model:
            raise unknown_model(name, self.model)
        ask.model = name

    def room(self, ask: Ask, prompt: bytes) -> int:
        """The most tokens an answer may have. Raises Wrong."""
        return check_room(tokens.count(prompt), ask.output_tokens_max, self.context_tokens, ask.output_param)

    def _choices(self, answer: Answer) -> list[Choice]:
        ask = answer.ask
        choices: list[Choice] = []
        for prompt in ask.prompts:
            most = self.room(ask, prompt)
            if self._role is Role.PREFILL:  # it makes one token, whatever it is asked for
                most = 1
            for nth in range(ask.sequences):
                plan = answer.plan or self._book.plan(
                    prompt, ask.seed + nth, most, ask.output_tokens_min, ask.stops, endless=ask.endless
                )
                job = self._job(ask, prompt, plan)
                choices.append(Choice(answer, len(choices), prompt, plan, job))
        return choices

    def _job(self, ask: Ask, prompt: bytes, plan: Plan) -> Job:
        keys: list[int] = []
        prompt_tokens = tokens.count(prompt)
        if self.profile.prefix_caching:
            root = f"{ask.salt}\0{ask.adapter}" if ask.salt or ask.adapter else ""
            keys = tokens.block_keys(prompt + plan.text, self.profile.block_tokens, root)
        remote_tokens = 0
        if ask.transfer and ask.transfer.get("do_remote_prefill"):
            told = ask.transfer.get("remote_num_tokens")
            remote_tokens = min(max(told, 0), prompt_tokens) if isinstance(told, int) else prompt_tokens
        return Job(
            next(self._numbers), prompt_tokens, plan.tokens, keys, ask.priority, ask.adapter, remote_tokens
        )

    def cached(self, job: Job) -> Cached:
        """See kv_events.Source."""
        choice = self.live.track(job.number)
        assert isinstance(choice, Choice)  # noqa: S101 - there are no others
        ask = choice.answer.ask
        return Cached(choice.prompt + choice.plan.text, ask.salt, ask.adapter)

    # -- adapters ---------------------------------------------------------------------------------

    def load_adapter(self, name: str, path: str) -> str:
        """Have an adapter from now on; what vLLM says to it. Raises Wrong."""
        if not self.profile.adapters_max:
            raise Wrong(NOT_ENABLED)
        if not name or not path:
            raise Wrong("Both 'lora_name' and 'lora_path' must be provided.", kind="InvalidUserInput")
        if name in self.adapters:
            raise Wrong(f"The lora adapter '{name}' has already been loaded.", kind="InvalidUserInput")
        self.adapters[name] = path
        return f"Success: LoRA adapter '{name}' added successfully."

    def unload_adapter(self, name: str) -> str:
        """Have it no longer. Raises Wrong."""
        if self.adapters.pop(name, None) is None:
            raise Wrong(f"The lora adapter '{name}' cannot be found.", kind=NOT_FOUND, status=404)
        return f"Success: LoRA adapter '{name}' removed successfully."
