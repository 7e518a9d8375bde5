"""What requests say: prompts as pieces of text, so that engines can remember what two of them share.

A prompt source makes scripts without end. A script is what one user asks, turn by turn; most have one turn.
Everything in it is drawn when it begins, so that nothing depends on when answers come.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle
from random import Random
from typing import Annotated

from msgspec import Struct

from maitred.config.kinds import GRACE, NUMBER, choice
from maitred.config.setting import Setting
from maitred.sim.job import Segments
from maitred.sim.lengths import LENGTH, Length

PROMPTS_MAX = 1_000_000
TURNS_MAX = 1_000


class Turn(Struct, frozen=True):
    """One request: its prompt, and the answer it will get, as the piece `answer` of `output_tokens`."""

    prompt: Segments
    prompt_tokens: int
    output_tokens: int
    answer: int


Script = list[Turn]


class Answers(Struct, frozen=True):
    """How long answers are; `reasoning` comes before what is said, and counts as output."""

    output: Length
    reasoning: Length | None = None

    @property
    def tokens_max(self) -> int:
        """The longest output."""
        return self.output.tokens_max + (self.reasoning.tokens_max if self.reasoning else 0)

    def draw(self, rng: Random) -> tuple[int, int]:
        """Tokens thought, tokens said."""
        return self.reasoning.draw(rng) if self.reasoning else 0, self.output.draw(rng)


class Alone(Struct, frozen=True):
    """Prompts that share nothing."""

    tokens: Annotated[Length, Setting("tokens", LENGTH, "Length of a prompt.")]

    def longest_tokens(self, answers: Answers) -> int:
        """The most that a prompt and its answer can be together."""
        return self.tokens.tokens_max + answers.tokens_max

    def scripts(self, answers: Answers, rng: Random, ids: Iterator[int]) -> Iterator[Script]:
        """Scripts without end; pieces get their ids from `ids`."""
        while True:
            tokens = self.tokens.draw(rng)
            yield [Turn(((next(ids), tokens),), tokens, sum(answers.draw(rng)), next(ids))]


class Groups(Struct, frozen=True):
    """A list of prompts in groups; those of a group begin with the same text, such as a system prompt."""

    groups: Annotated[int, Setting("groups", NUMBER, "How many groups.")]
    per_group: Annotated[int, Setting("per_group", NUMBER, "Prompts in each.")]
    shared: Annotated[Length, Setting("shared", LENGTH, "Length of what a group shares.")]
    own: Annotated[Length, Setting("own", LENGTH, "Length of what each prompt adds.")]
    order: Annotated[
        str,
        Setting(
            "order",
            choice("cycle", "uniform"),
            "`cycle` shuffles the list once and takes them in turn, `uniform` takes any one each time.",
        ),
    ] = "cycle"

    def __post_init__(self) -> None:
        """ValueError where the list would be too long."""
        if self.groups * self.per_group > PROMPTS_MAX:
            raise ValueError(f"groups x per_group must be at most {PROMPTS_MAX:,}")

    def longest_tokens(self, answers: Answers) -> int:
        """The most that a prompt and its answer can be together."""
        return self.shared.tokens_max + self.own.tokens_max + answers.tokens_max

    def scripts(self, answers: Answers, rng: Random, ids: Iterator[int]) -> Iterator[Script]:
        """Scripts without end; pieces get their ids from `ids`. The same prompt is the same object."""
        prompts: list[Segments] = []
        for _ in range(self.groups):
            shared = (next(ids), self.shared.draw(rng))
            prompts += [(shared, (next(ids), self.own.draw(rng))) for _ in range(self.per_group)]
        rng.shuffle(prompts)
        in_turn = cycle(prompts) if self.order == "cycle" else iter(lambda: rng.choice(prompts), None)
        for prompt in in_turn:
            tokens = prompt[0][1] + prompt[1][1]
            yield [Turn(prompt, tokens, sum(answers.draw(rng)), next(ids))]


class Conversations(Struct, frozen=True):
    """Each turn sends all that was said before, and something new; it is sent when the last is over.

    What a model thought is not sent again, as chat templates do, so that after reasoning the engine remembers
    the prompt of the turn before and not its answer.
    """

    turns: Annotated[Length, Setting("turns", LENGTH, "Turns of a conversation.")]
    own: Annotated[Length, Setting("own", LENGTH, "Length of what the user says in a turn.")]
    first: Annotated[
        Length | None,
        Setting("first", LENGTH, "Length of it in the first turn, when it brings documents.", "`own`"),
    ] = None
    system: Annotated[
        int, Setting("system", NUMBER, "Tokens of the system prompt, the same in all conversations.", "none")
    ] = 0
    think_s: Annotated[float, Setting("think", GRACE, "From an answer to the next turn.")] = 0.0

    def __post_init__(self) -> None:
        """ValueError where a conversation would be too long."""
        if self.turns.tokens_max > TURNS_MAX:
            raise ValueError(f"turns must be at most {TURNS_MAX:,}")

    def longest_tokens(self, answers: Answers) -> int:
        """The most that a prompt and its answer can be together."""
        first = self.first or self.own
        later = (self.turns.tokens_max - 1) * (self.own.tokens_max + answers.output.tokens_max)
        return self.system + first.tokens_max + later + answers.tokens_max

    def scripts(self, answers: Answers, rng: Random, ids: Iterator[int]) -> Iterator[Script]:
        """Scripts without end; pieces get their ids from `ids`."""
        opening: Segments = ((next(ids), self.system),) if self.system else ()
        while True:
            yield self._script(opening, answers, rng, ids)

    def _script(self, text: Segments, answers: Answers, rng: Random, ids: Iterator[int]) -> Script:
        script: Script = []
        length = sum(tokens for _, tokens in text)
        for number in range(self.turns.draw(rng)):
            asked = (self.own if number or not self.first else self.first).draw(rng)
            text = (*text, (next(ids), asked))
            length += asked
            thought, said = answers.draw(rng)
            turn = Turn(text, length, thought + said, next(ids))
            script.append(turn)
            text = (*text, (next(ids) if thought else turn.answer, said))
            length += said
        return script


Prompts = Alone | Groups | Conversations
