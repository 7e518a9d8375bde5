"""Token ids by the model's own tokenizer, and whether the engines have the same.

A prompt that is rendered a little differently finds nothing in an engine's cache, and everything still looks
well. So ours are compared with each engine's, at the start and whenever it is another one than before.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from maitred.config.tree import Model
from maitred.core.tokens import NoTokens
from maitred.core.words import Api, Endpoint
from maitred.door.canaries import canaries
from maitred.door.read import Order
from maitred.door.source import Refused, Shared, Source
from maitred.engines.tokenize import asking
from maitred.net.pool import ConnectFailed
from maitred.wire.conversation import TOOL_FORMS, ToolForm

if TYPE_CHECKING:
    from maitred.door.tokenizer import Folder

CANARY_S = 5.0
"""How long an engine may take for each question about a canary."""
MISSING_PACKAGE = "needs another package; pip install 'maitred[tokenizers]'"


class Verdict(Struct, frozen=True):
    """How an engine's ids compare with ours: the forms of tools with which all `compared` canaries agree.

    `differs` names the first that agrees in no form.
    """

    forms: frozenset[int]
    compared: int
    differs: str = ""


class OurTokens(Source):
    """The model's own tokenizer, from a folder, in a thread."""

    def __init__(self, model: Model, shared: Shared, path: Path) -> None:
        super().__init__(model, shared)
        self.path = path
        self._canaries = canaries(model.served_as)
        self._folder: Folder | None = None
        self._why = ""
        self._form: ToolForm | None = TOOL_FORMS[0]
        self._verdicts: dict[tuple[str, int], Verdict] = {}
        shared.beside.prepare(self._load)

    @property
    def works(self) -> bool:
        """Whether ids are told, or will be."""
        return not self._why and self._form is not None

    def _load(self) -> None:
        try:
            from maitred.door.tokenizer import Folder, NoTokenizer  # noqa: PLC0415 - an extra, and 20 MiB
        except ImportError:
            self._why = MISSING_PACKAGE
            return
        try:
            self._folder = Folder(self.path)
        except NoTokenizer as error:
            self._why = str(error)

    async def _find(self, order: Order) -> bytes | NoTokens:
        form = self._form
        if self._why:
            return NoTokens.FAILED
        if form is None:
            return NoTokens.TEMPLATE_MISMATCH
        api, parts = order.request.api, order.parts
        return await self._shared.beside.run(lambda: self._ids(api, b"".join(parts), form))

    def _ids(self, api: Api, body: bytes, form: ToolForm) -> bytes:
        assert self._folder is not None  # noqa: S101 - the thread has loaded it before anything else
        return self._folder.ids(api, body, form)

    # -- comparing ---------------------------------------------------------------------------------

    async def compare(self) -> None:
        """See Source."""
        if self._why:
            return
        ready = {(it.name, it.incarnation): it for it in self._shared.ready(self.model.name)}
        for key, endpoint in ready.items():
            if key not in self._verdicts and (verdict := await self._judge(endpoint)) is not None:
                self._verdicts[key] = verdict
        self._verdicts = {key: verdict for key, verdict in self._verdicts.items() if key in ready}
        agreed = frozenset(range(len(TOOL_FORMS))).intersection(*(it.forms for it in self._verdicts.values()))
        self._form = TOOL_FORMS[min(agreed)] if agreed else None

    async def _judge(self, endpoint: Endpoint) -> Verdict | None:
        """Compare all canaries; None if it cannot be done now."""
        theirs: list[tuple[str, Api, bytes, bytes]] = []
        for name, api, body in self._canaries:
            question = asking(endpoint.facts.engine, api, body)
            if question is None:
                continue
            try:
                ids = await self._shared.ask(endpoint.url, question, CANARY_S)
            except Refused as refused:
                if refused.status >= 500:
                    return None
            except ConnectFailed:
                return None
            except (ValueError, OverflowError):
                continue
            else:
                theirs.append((name, api, body, ids))
        verdict = await self._shared.beside.run(lambda: self._compared(theirs))
        return verdict if isinstance(verdict, Verdict) else None

    def _compared(self, theirs: list[tuple[str, Api, bytes, bytes]]) -> Verdict:
        agreed = frozenset(range(len(TOOL_FORMS)))
        for name, api, body, ids in theirs:
            agreed &= {at for at, form in enumerate(TOOL_FORMS) if self._ids_or_none(api, body, form) == ids}
            if not agreed:
                return Verdict(agreed, len(theirs), name)
        return Verdict(agreed, len(theirs))

    def _ids_or_none(self, api: Api, body: bytes, form: ToolForm) -> bytes | None:
        try:
            return self._ids(api, body, form)
        except Exception:  # noqa: BLE001 - a template may raise anything, and an engine's has raised nothing
            return None

    def wrong(self) -> Iterator[tuple[str, str, str, str]]:
        """See Source."""
        if self._why:
            yield (
                "tokenizer_unusable",
                self.model.name,
                f"{self.path}: {self._why}",
                "put it right and reload",
            )
        do = "give tokens.folder what the engines use, or write tokens: engine"
        if self._form is None and all(verdict.forms for verdict in self._verdicts.values()):
            yield "template_mismatch", self.model.name, "its engines render tools in different ways", do
        for (name, _), verdict in self._verdicts.items():
            if not verdict.forms:
                what = f"its token ids are not those of {self.path}, at the canary {verdict.differs!r}"
                yield "template_mismatch", name, what, do
            elif verdict.compared < len(self._canaries):
                what = f"it tells its token ids of {verdict.compared} canaries in {len(self._canaries)}"
                yield "tokens_unchecked", name, what, "compare predicted with reported cached tokens"
