"""Token ids of a real engine: those it tells are those of its model's own tokenizer."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from maitred.config.tree import Model
from maitred.core.endpoints import EndpointTable
from maitred.core.events import Event
from maitred.core.words import Api, EndpointState, Facts
from maitred.door.tokenizer import Folder
from maitred.door.tokens import Tokens
from maitred.engines.llamacpp import bundled_model
from maitred.net.client import Patience
from maitred.net.pool import Pool
from maitred.net.seams import Sockets
from maitred.net.sweep import Sweep
from maitred.observe.findings import Findings
from maitred.wire.conversation import TOOL_FORMS
from tests.door import gguf
from tests.door.test_read import order
from tests.e2e.children import Engine

MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hello!  Is 1234 + 5 = 1239?\n\n日本語 🙂"},
    {"role": "assistant", "content": "It is."},
    {"role": "user", "content": "<|im_end|> is a word, too"},
]


@pytest.mark.usefixtures("patient")
def test_llamacpp_tells_what_its_models_tokenizer_makes(engines: list[Engine], tmp_path: Path) -> None:
    folder = Folder(gguf.folder(bundled_model(), tmp_path))

    async def main() -> None:
        table, events, sweep = EndpointTable(), list[Event](), Sweep(time.monotonic)
        pool = Pool(Sockets(), sweep, Patience())
        tokens = Tokens(pool, table, events.append, Findings(), time.monotonic)
        tokens.apply([Model("m", (), tokens="engine")])
        ((endpoint, _),) = table.replace({"m": (engines[0].url,)})
        endpoint.state, endpoint.facts = EndpointState.READY, Facts("llamacpp")
        sweep.start()
        for path, api, said in (
            ("/v1/chat/completions", Api.CHAT, {"messages": MESSAGES}),
            ("/v1/completions", Api.COMPLETIONS, {"prompt": "Once upon a time,  12 cafés"}),
        ):
            asked = order(path, {"model": "m", **said})
            body = b"".join(asked.parts)
            assert await tokens.sources["m"](asked) == folder.ids(api, body, TOOL_FORMS[0])
        tokens.close()
        pool.close()
        sweep.stop()
        await asyncio.sleep(0)

    asyncio.run(main())
