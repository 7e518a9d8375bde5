"""The paths about the twin itself: models, health and metrics, sleep, adapters, failures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from maitred.net.exchange import HttpExchange
from maitred.twin import metrics, tokens
from maitred.twin.answers import BASE_LINES, Choice
from maitred.twin.errors import Wrong
from maitred.twin.faults import NONE, parse
from maitred.twin.house import House, Route, respond
from maitred.twin.reading import read

VERSION = "0.32.0"
"""The vLLM that is imitated."""
STEER = "/twin/"
TEXT_LINES = BASE_LINES + b"content-type: text/plain; charset=utf-8\r\n"
GET, POST = ("GET",), ("POST",)


class _Adapter(Struct):
    lora_name: str = ""
    lora_path: str = ""


def _telling(tell: Callable[[House], Any]) -> Route:
    """A path that says one thing."""
    return Route(GET, lambda house, exchange: respond(exchange, tell(house)))


# -- what is served -----------------------------------------------------------------------------------


def _models(house: House) -> dict[str, Any]:
    service = house.service
    cards: list[tuple[str, str, str | None]] = [(service.model, service.profile.model, None)]
    cards += [(name, path, service.model) for name, path in service.adapters.items()]
    return {"object": "list", "data": [_card(house, *card) for card in cards]}


def _card(house: House, name: str, root: str, parent: str | None) -> dict[str, Any]:
    service = house.service
    created = int(service.started_s)
    permission = {
        "id": f"modelperm-{tokens.block_keys(tokens.encode(name), 1)[-1]:016x}",
        "object": "model_permission",
        "created": created,
        "allow_create_engine": False,
        "allow_sampling": True,
        "allow_logprobs": True,
        "allow_search_indices": False,
        "allow_view": True,
        "allow_fine_tuning": False,
        "organization": "*",
        "group": None,
        "is_blocking": False,
    }
    return {
        "id": name,
        "object": "model",
        "created": created,
        "owned_by": "vllm",
        "root": root,
        "parent": parent,
        "max_model_len": None if parent else service.context_tokens,
        "permission": [permission],
    }


def _server_info(house: House) -> dict[str, str]:
    service, profile = house.service, house.service.profile
    config = (
        f"model={profile.model!r}, max_seq_len={service.context_tokens}, "
        f"data_parallel_size={profile.ranks}, enable_prefix_caching={profile.prefix_caching}, "
        f"max_num_seqs={profile.sequences_max}, max_num_batched_tokens={profile.step_tokens_max}, "
        f"block_size={profile.block_tokens}"
    )
    return {"vllm_config": config}


# -- how it is ----------------------------------------------------------------------------------------


def _health(house: House, exchange: HttpExchange) -> None:
    exchange.respond(200 if house.phase is None else 503, BASE_LINES, b"")


def _metrics(house: House, exchange: HttpExchange) -> None:
    if house.fault.metrics_stop:
        raise Wrong("The twin was told to fail.", kind="InternalServerError", status=500)
    service = house.service
    choices = [track for track in service.live.tracks if isinstance(track, Choice)]
    running = {choice.job.adapter for choice in choices if choice.made} - {""}
    waiting = {choice.job.adapter for choice in choices if not choice.made} - {""}
    vitals = metrics.Vitals(
        service.live.engine,
        service.live.counts,
        service.model,
        service.started_s,
        service.asleep,
        sorted(running),
        sorted(waiting),
        service.wall(),
    )
    exchange.respond(200, metrics.CONTENT_LINES, metrics.render(vitals))


def _sleep(house: House, exchange: HttpExchange) -> None:
    """The level of a query is not read: level 1 is the only one there is."""
    house.sleep(asleep=True)
    respond(exchange, {"status": "sleeping", "level": 1})


def _wake_up(house: House, exchange: HttpExchange) -> None:
    house.sleep(asleep=False)
    respond(exchange, {"status": "awake"})


def _reset_prefix_cache(house: House, exchange: HttpExchange) -> None:
    respond(exchange, {"success": house.service.live.engine.clear_cache()})


def _load_adapter(house: House, exchange: HttpExchange) -> None:
    said = read(exchange.body, _Adapter)
    done = house.service.load_adapter(said.lora_name, said.lora_path)
    exchange.respond(200, TEXT_LINES, done.encode())


def _unload_adapter(house: House, exchange: HttpExchange) -> None:
    done = house.service.unload_adapter(read(exchange.body, _Adapter).lora_name)
    exchange.respond(200, TEXT_LINES, done.encode())


# -- what is wrong ------------------------------------------------------------------------------------


def _state(house: House) -> dict[str, Any]:
    engine = house.service.live.engine
    return {
        "phase": house.phase or "ready",
        "fault": house.fault.words,
        "asleep": house.service.asleep,
        "running": engine.running,
        "waiting": engine.waiting,
        "kv_use": engine.kv_use,
    }


def _steer(house: House, exchange: HttpExchange) -> None:
    """POST /twin/recover, /twin/fail with words as its body, or /twin/WORDS."""
    words = exchange.head.path.removeprefix(STEER)
    if words == "fail":
        words = exchange.body.decode(errors="replace")
    try:
        house.fail(NONE if words == "recover" else parse(words), spared=exchange)
    except ValueError as error:
        raise Wrong(str(error)) from error
    respond(exchange, _state(house))


STEERING = Route(POST, _steer, always=True)

ROUTES = {
    "/v1/models": _telling(_models),
    "/version": Route(GET, lambda _, exchange: respond(exchange, {"version": VERSION})),
    "/server_info": _telling(_server_info),
    "/load": _telling(lambda house: {"server_load": len(house.service.live.tracks)}),
    "/health": Route(GET, _health, always=True),
    "/ping": Route(("GET", "POST"), _health, always=True),
    "/metrics": Route(GET, _metrics),
    "/sleep": Route(POST, _sleep),
    "/wake_up": Route(POST, _wake_up),
    "/is_sleeping": _telling(lambda house: {"is_sleeping": house.service.asleep}),
    "/reset_prefix_cache": Route(POST, _reset_prefix_cache),
    "/v1/load_lora_adapter": Route(POST, _load_adapter),
    "/v1/unload_lora_adapter": Route(POST, _unload_adapter),
    "/twin": Route(GET, lambda house, exchange: respond(exchange, _state(house)), always=True),
}
