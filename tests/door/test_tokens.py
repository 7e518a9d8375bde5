"""Token ids at the door: by engines and by ourselves, compared, counted, and never in a request's way."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from maitred.config.tree import Model, TokensFolder
from maitred.core.endpoints import EndpointTable
from maitred.core.events import Event, Tokenized
from maitred.core.tokens import NoTokens
from maitred.core.words import Api, EndpointState, Facts
from maitred.door import theirs
from maitred.door.canaries import canaries
from maitred.door.ours import OurTokens
from maitred.door.read import Order
from maitred.door.source import BODY_BYTES_MAX
from maitred.door.tokens import Tokens
from maitred.engines.tokenize import packed
from maitred.observe.findings import Findings
from maitred.wire.conversation import TOOL_FORMS, ToolForm
from tests.control.engines import HANG, Answer, Engine, Street, street
from tests.door import models
from tests.door.test_read import order

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
BODY = {"model": "m", "messages": [{"role": "user", "content": "ab"}]}
PORT = 8001
pytestmark = pytest.mark.usefixtures("patient")
IMAGE = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]


class Door:
    """What a test has in hand: engines at ports, the endpoints that stand for them, and what was told."""

    def __init__(self, streets: Street) -> None:
        self.street = streets
        self.table = EndpointTable()
        self.events: list[Event] = []
        self.findings = Findings()
        self.tokens = Tokens(
            self.street.pool, self.table, self.events.append, self.findings, asyncio.get_running_loop().time
        )

    def apply(self, tokens: str | Path, served_as: str = "served") -> None:
        source = TokensFolder(tokens) if isinstance(tokens, Path) else tokens
        self.tokens.apply([Model("m", (), served_as=served_as, tokens=source), Model("other", ())])

    def seat(self, *ports: int, engine: str = "vllm") -> None:
        """From now on endpoints at these ports are ready."""
        list(self.table.replace({"m": tuple(f"http://127.0.0.1:{port}" for port in ports)}))
        for endpoint in self.table.by_pool["m"]:
            endpoint.state = EndpointState.READY if endpoint.listed else EndpointState.DRAINING
            endpoint.facts = Facts(engine)

    async def ids(self, path: str = CHAT, **members: Any) -> bytes | NoTokens:
        return await self.of(order(path, {**BODY, **members}))

    async def of(self, asked: Order) -> bytes | NoTokens:
        return await self.tokens.sources["m"](asked)

    def found(self) -> list[tuple[str, str]]:
        return [(finding.kind, finding.where) for finding in self.findings.current()]

    async def compared(self) -> list[tuple[str, str]]:
        """The findings after another comparison."""
        await self.tokens.compare()
        return self.found()


@asynccontextmanager
async def door() -> AsyncIterator[Door]:
    """Real time: a thread is waited for."""
    async with street() as streets:
        it = Door(streets)
        yield it
        it.tokens.close()


def run(main: Callable[[Door], Coroutine[Any, Any, None]]) -> None:
    async def opened() -> None:
        async with door() as it:
            await main(it)

    asyncio.run(opened())


class Reads(dict[str, Answer]):
    """The answers of an engine that tokenises as a folder does, giving tools a form of its own."""

    def __init__(self, where: Path, form: ToolForm = TOOL_FORMS[0], refuses: tuple[Api, ...] = ()) -> None:
        from maitred.door.tokenizer import Folder

        super().__init__()
        self.folder, self.form, self.refuses = Folder(where), form, refuses
        self.engine: Engine

    def get(self, path: str, default: Any = None) -> Answer:
        asked = self.engine.asked[-1][1]
        api = Api.CHAT if "messages" in asked else Api.COMPLETIONS
        if path != "/tokenize" or api in self.refuses:
            return 400, b"{}"
        ids = self.folder.ids(api, json.dumps(asked).encode(), self.form)
        return 200, json.dumps({"tokens": list(memoryview(ids).cast("I"))}).encode()


async def reading(it: Door, port: int, where: Path, form: ToolForm = TOOL_FORMS[0], *refuses: Api) -> Engine:
    """Such an engine, at a port."""
    answers = Reads(where, form, refuses)
    answers.engine = await it.street.open(port, answers)
    return answers.engine


def our(**members: Any) -> bytes:
    """What the small tokenizer makes of the small chat."""
    text = "<|im_start|>user\nab<|im_end|>\n<|im_start|>assistant\n"
    return packed(models.byte_level().encode(text).ids)


# -- theirs ----------------------------------------------------------------------------------------


def test_an_engine_tells() -> None:
    async def main(it: Door) -> None:
        engine = await it.street.open(PORT, {"/tokenize": (200, b'{"tokens":[1,2]}')})
        it.apply("engine")
        it.seat(PORT)
        assert await it.ids() == packed([1, 2])
        assert [(path, asked) for path, asked, _ in engine.asked] == [("/tokenize", BODY)]
        assert it.events == [Tokenized(it.events[0].at, "m", it.events[0].took_s, None)]  # type: ignore[union-attr]

    run(main)


def test_vllm_may_be_asked_for_what_it_would_run() -> None:
    async def main(it: Door) -> None:
        await it.street.open(PORT, {"/v1/messages/render": (200, b'{"token_ids":[1]}')})
        it.apply("render")
        it.seat(PORT)
        assert await it.ids("/v1/messages") == packed([1])

    run(main)


def test_the_one_with_the_least_to_do_is_asked() -> None:
    async def main(it: Door) -> None:
        for port in (PORT, PORT + 1):
            await it.street.open(port, {"/tokenize": (200, b'{"tokens":[%d]}' % port)})
        it.apply("engine")
        it.seat(PORT, PORT + 1)
        it.table.by_pool["m"][0].running = 1
        assert await it.ids() == packed([PORT + 1])
        it.table.by_pool["m"][1].state = EndpointState.EJECTED
        assert await it.ids() == packed([PORT])

    run(main)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((404, b"{}"), NoTokens.FAILED),
        ((200, b"{}"), NoTokens.FAILED),
        ((200, b'{"tokens":[-1]}'), NoTokens.FAILED),
        (HANG, NoTokens.TIMEOUT),
    ],
)
def test_an_engine_that_does_not_tell_is_a_reason(
    answer: Answer, reason: NoTokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    if answer is HANG:
        monkeypatch.setattr(theirs, "TIMEOUT_S", 0.05)

    async def main(it: Door) -> None:
        await it.street.open(PORT, {"/tokenize": answer})
        it.apply("engine")
        it.seat(PORT)
        assert await it.ids() is reason
        assert it.events[0].missing is reason  # type: ignore[union-attr]

    run(main)


def test_nobody_to_ask_is_a_reason() -> None:
    async def main(it: Door) -> None:
        it.apply("engine")
        assert await it.ids() is NoTokens.FAILED
        it.seat(PORT)
        assert await it.ids() is NoTokens.FAILED
        it.seat(PORT, engine="sglang")
        assert await it.ids() is NoTokens.UNSUPPORTED

    run(main)


def test_nobody_is_asked_what_is_known_or_cannot_be_told() -> None:
    async def main(it: Door) -> None:
        engine = await it.street.open(PORT, {})
        it.apply("engine")
        it.seat(PORT)
        assert await it.ids(TEXT, prompt=[5, 6]) == packed([5, 6])
        assert await it.ids(messages=[{"role": "user", "content": IMAGE}]) is NoTokens.UNSUPPORTED
        assert not engine.asked

    run(main)


def test_engines_are_asked_few_things_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(theirs, "WAITING_MAX", 2)

    async def main(it: Door) -> None:
        await it.street.open(PORT, {"/tokenize": (200, b'{"tokens":[1]}')}, takes_s=0.01)
        it.apply("engine")
        it.seat(PORT)
        told = await asyncio.gather(it.ids(), it.ids(), it.ids())
        assert told.count(packed([1])) == 2
        assert told.count(NoTokens.BUSY) == 1
        assert await it.ids() == packed([1])

    run(main)


# -- whoever tells ---------------------------------------------------------------------------------


def test_what_has_no_prompt_is_not_looked_at(tmp_path: Path) -> None:
    async def main(it: Door) -> None:
        for source in ("engine", models.write(tmp_path)):
            it.apply(source)
            assert await it.ids("/v1/embeddings") is NoTokens.OFF
        assert not it.events
        assert it.tokens.sources.get("other") is None

    run(main)


def test_a_long_body_is_known_by_its_bytes(tmp_path: Path) -> None:
    async def main(it: Door) -> None:
        it.apply(models.write(tmp_path))
        assert await it.ids(padding="x" * BODY_BYTES_MAX) is NoTokens.TOO_LONG
        assert it.events[0].missing is NoTokens.TOO_LONG  # type: ignore[union-attr]

    run(main)


# -- ours ------------------------------------------------------------------------------------------


def test_we_tell(tmp_path: Path) -> None:
    async def main(it: Door) -> None:
        it.apply(models.write(tmp_path))
        assert await it.ids() == our()
        assert await it.ids(messages=[{"role": "user", "content": 5}]) is NoTokens.FAILED
        assert await it.ids(messages=[{"role": "user", "content": IMAGE}]) is NoTokens.UNSUPPORTED
        assert [event.missing for event in it.events] == [None, NoTokens.FAILED, NoTokens.UNSUPPORTED]  # type: ignore[union-attr]

    run(main)


@pytest.mark.parametrize("form", range(len(TOOL_FORMS)))
def test_the_form_of_tools_is_learned_from_the_engine(tmp_path: Path, form: int) -> None:
    where = models.write(tmp_path)

    async def main(it: Door) -> None:
        engine = await reading(it, PORT, where, TOOL_FORMS[form])
        it.apply(where)
        it.seat(PORT)
        assert await it.compared() == []
        assert {asked["model"] for _, asked, _ in engine.asked} == {"served"}
        tools = [{"function": {"parameters": {}, "name": "f"}}]
        asked = json.dumps({**BODY, "tools": tools}).encode()
        assert await it.ids(tools=tools) == Reads(where).folder.ids(Api.CHAT, asked, TOOL_FORMS[form])

    run(main)


def test_an_engine_is_compared_once_and_again_when_it_is_another(tmp_path: Path) -> None:
    where = models.write(tmp_path)

    async def main(it: Door) -> None:
        engine = await reading(it, PORT, where)
        it.apply(where)
        it.seat(PORT)
        for incarnation in (0, 0, 1, 1):
            it.table.by_pool["m"][0].incarnation = incarnation
            await it.tokens.compare()
        assert len(engine.asked) == 2 * len(canaries("m"))

    run(main)


def test_an_engine_that_reads_otherwise_is_found_and_nothing_told(tmp_path: Path) -> None:
    ours, other = tmp_path / "ours", tmp_path / "other"
    for where in (ours, other):
        where.mkdir()
    models.write(ours)
    models.write(other, chat_template=models.TEMPLATE.replace("assistant\n", "assistant"))

    async def main(it: Door) -> None:
        await reading(it, PORT, ours)
        await reading(it, PORT + 1, other)
        it.apply(ours)
        it.seat(PORT)
        assert await it.compared() == []
        it.seat(PORT, PORT + 1)
        assert await it.compared() == [("template_mismatch", f"m/127.0.0.1:{PORT + 1}")]
        assert "'chat'" in it.findings.current()[0].what
        assert await it.ids() is NoTokens.TEMPLATE_MISMATCH
        it.seat(PORT)
        assert await it.compared() == []
        assert await it.ids() == our()

    run(main)


def test_engines_that_render_tools_in_two_ways_are_found(tmp_path: Path) -> None:
    where = models.write(tmp_path)

    async def main(it: Door) -> None:
        await reading(it, PORT, where, TOOL_FORMS[0])
        await reading(it, PORT + 1, where, TOOL_FORMS[1])
        it.apply(where)
        it.seat(PORT, PORT + 1)
        assert await it.compared() == [("template_mismatch", "m")]
        assert await it.ids() is NoTokens.TEMPLATE_MISMATCH

    run(main)


def test_an_engine_that_does_not_tell_is_trusted_and_that_is_said(tmp_path: Path) -> None:
    where = models.write(tmp_path)

    async def main(it: Door) -> None:
        await reading(it, PORT, where, TOOL_FORMS[0], Api.CHAT)
        it.apply(where)
        it.seat(PORT)
        assert await it.compared() == [("tokens_unchecked", f"m/127.0.0.1:{PORT}")]
        assert "1 canaries in 5" in it.findings.current()[0].what
        assert await it.ids() == our()

    run(main)


@pytest.mark.parametrize("answer", [(503, b""), None])
def test_an_engine_that_cannot_answer_now_is_asked_again(
    tmp_path: Path, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("maitred.door.ours.CANARY_S", 0.01)
    where = models.write(tmp_path)

    async def main(it: Door) -> None:
        await it.street.open(PORT, {"/tokenize": answer})
        it.apply(where)
        it.seat(PORT)
        assert await it.compared() == []
        source = it.tokens.sources["m"]
        assert isinstance(source, OurTokens)
        assert not source._verdicts
        assert await it.ids() == our()

    run(main)


def test_a_folder_that_is_no_use_is_found_and_read_again_on_reload(tmp_path: Path) -> None:
    async def main(it: Door) -> None:
        it.apply(tmp_path)
        assert await it.ids() is NoTokens.FAILED
        assert await it.compared() == [("tokenizer_unusable", "m")]
        assert "tokenizer.json" in it.findings.current()[0].what
        models.write(tmp_path)
        it.apply(tmp_path)
        assert await it.ids() == our()
        assert await it.compared() == []

    run(main)


def test_a_missing_package_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "maitred.door.tokenizer", None)

    async def main(it: Door) -> None:
        it.apply(models.write(tmp_path))
        assert await it.ids() is NoTokens.FAILED
        await it.tokens.compare()
        assert "pip install 'maitred[tokenizers]'" in it.findings.current()[0].what

    run(main)


def test_a_reload_leaves_alone_what_it_does_not_change(tmp_path: Path) -> None:
    where = models.write(tmp_path)

    async def main(it: Door) -> None:
        it.apply(where)
        source = it.tokens.sources["m"]
        it.apply(where)
        assert it.tokens.sources["m"] is source
        it.apply(where, served_as="new")
        assert it.tokens.sources["m"] is not source
        it.apply("engine")
        assert not isinstance(it.tokens.sources["m"], OurTokens)
        it.tokens.apply([])
        assert it.tokens.sources == {}

    run(main)


def test_the_loop_goes_on_until_it_is_cancelled(tmp_path: Path) -> None:
    async def main(it: Door) -> None:
        it.apply(tmp_path)
        looks = 0

        async def sleep(_: float) -> None:
            nonlocal looks
            looks += 1
            await it.ids()
            if looks == 3:
                raise asyncio.CancelledError

        it.tokens._sleep = sleep
        with pytest.raises(asyncio.CancelledError):
            await it.tokens.run()
        assert it.found() == [("tokenizer_unusable", "m")]

    run(main)
