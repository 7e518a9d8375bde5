"""What the operator says of MCP servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from maitred.config.load import load
from maitred.config.mcp import McpServer, ToolList, parse_header, parse_server
from maitred.config.raw import ConfigError
from maitred.config.secret import EnvSecret

TEXT = """
version: 1
endpoints: [http://127.0.0.1:1]
mcp:
  servers:
    github:
      url: https://mcp.example.com/github
      authorization: {env: TOKEN}
      headers: {X-Team: {env: TEAM}}
      tools: [search, create]
      approval: {tools: [create]}
tenants:
  few: {mcp: [github]}
  none: {mcp: []}
"""


def test_a_server_is_read(tmp_path: Path) -> None:
    config = load(_written(tmp_path, TEXT), environ={"TOKEN": "x", "TEAM": "a"})
    assert config.mcp.servers == {
        "github": McpServer(
            "https://mcp.example.com/github",
            authorization=EnvSecret("TOKEN"),
            headers={"X-Team": EnvSecret("TEAM")},
            tools=("search", "create"),
            approval=ToolList(("create",)),
        )
    }
    assert {name: tenant.mcp for name, tenant in config.tenants.items()} == {"few": ("github",), "none": ()}
    assert config.default_tenant.mcp is None


def test_what_is_wrong_with_servers_is_said_at_its_place(tmp_path: Path) -> None:
    text = TEXT.replace("X-Team", "Host").replace("few: {mcp: [github]}", "few: {mcp: [gitlab]}")
    with pytest.raises(ConfigError) as wrong:
        load(_written(tmp_path, text), environ={"TEAM": "a"})
    said = [error.rpartition("maitred.yaml:")[2] for error in wrong.value.errors]
    assert said == [
        "9 mcp.servers.github.headers.Host: 'Host' cannot be set as a header here; leave it out",
        "13 tenants.few.mcp[0]: no server of mcp.servers is called 'gitlab'; there are github",
        "6 mcp.servers.github: the environment variable named there is not set",
    ]


def _written(folder: Path, text: str) -> Path:
    path = folder / "maitred.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    "text",
    [
        "https://tools.example.com",
        "http://127.0.0.1:1/mcp",
        "https://[::1]:8/a/b?key=of&all",
        "https://a/%20~x",
    ],
)
def test_urls_of_mcp_servers(text: str) -> None:
    assert parse_server(text) == text


@pytest.mark.parametrize(
    "text",
    [
        *("tools.example.com/mcp", "ftp://a/", "https://", "https:///mcp", "https://a b/", "https://a/ b"),
        *("https://user:secret@a/", "https://a/#part", "https://a:0/", "https://a\\.b/", "https://a/\n"),
        *("https://a/é", "https://a/\\b", "https://a?x#y", "https://ä/"),
    ],
)
def test_what_is_no_url_of_an_mcp_server(text: str) -> None:
    with pytest.raises(ValueError, match=r"https?|write such as") as error:
        parse_server(text)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("name", ["", "a b", "Host", "authorization", "Mcp-Session-Id", "a:", "ä", "x" * 129])
def test_headers_that_are_ours_or_none(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be set as a header"):
        parse_header(name)
    assert parse_header("X-Team") == "X-Team"
