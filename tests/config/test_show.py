"""Writing the tree out: YAML that loads to an equal tree, and a schema that knows the same settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from msgspec import Struct, structs

from maitred.config import auth, flow, kinds, mcp, routing
from maitred.config.auth import Auth, Store
from maitred.config.flow import Tenant
from maitred.config.kinds import Address, Kind
from maitred.config.load import load
from maitred.config.options import options_of
from maitred.config.secret import EnvSecret, FileSecret, Secret
from maitred.config.setting import Chosen, Forms, Listed, Mapped, Shape, fields_of, leaves
from maitred.config.show import schema, show
from maitred.config.tree import Admin, Config, Model
from maitred.core.chooser import ROUTING
from maitred.core.recipe import Piece

TEXT = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=20) | st.sampled_from(
    ["null", "1", "true", "a  b: c #d", "'", "-", "12:30", "=", "<<", "x" * 60 + " y" * 60]
)
DURATION = st.integers(1, 10**9).map(lambda number: number / 1000)
PORT = st.integers(0, 65535)
HOSTS = st.sampled_from(["127.0.0.1", "::1", "localhost"])
LEAVES: list[tuple[Kind, st.SearchStrategy[Any]]] = [
    (kinds.TIMEOUT, DURATION),
    (kinds.GRACE, DURATION | st.just(0.0)),
    (kinds.SIZE, st.integers(1, 10**9 - 1) | st.integers(1, 1000).map(lambda number: number * 1024**3)),
    (kinds.AMOUNT, st.integers(0, 10**9 - 1)),
    (kinds.RATIO, st.integers(0, 10**9).map(lambda number: number / 1000)),
    (kinds.NUMBER, st.integers(1, 10**9 - 1)),
    (kinds.USD, st.integers(0, 10**15 - 1)),
    (kinds.BUDGET, st.integers(1, 10**15 - 1)),
    (kinds.PERCENT, st.integers(0, 100).map(lambda percent: percent / 100)),
    *((kind, TEXT) for kind in (kinds.TEXT, auth.ISSUER, auth.AUDIENCE, flow.BAND, mcp.TOOL)),
    (kinds.FILE, TEXT.map(Path)),
    (kinds.HIDDEN_FILE, TEXT.map(Path)),
    (kinds.SWITCH, st.booleans()),
    (kinds.VERSION, st.just(1)),
    (kinds.ADDRESS, st.builds(Address, HOSTS, PORT)),
    (kinds.VARIABLE, st.just("TOKEN")),
    (kinds.HOST, st.sampled_from(["gateway", "cdn.example.com"])),
    (kinds.ORIGIN, st.sampled_from(["https://chat.example.com", "http://localhost:3000", "https://[::1]:1"])),
    (routing.POLICY, st.sampled_from(ROUTING.names)),
    (auth.DATABASE, st.sampled_from(["sqlite:///maitred.db", "sqlite:////var/lib/maitred.db"])),
    (auth.JWKS, st.sampled_from(["https://sso/keys?of=all", "http://127.0.0.1:1/jwks"])),
    (mcp.URL, st.sampled_from(["https://tools.example.com/mcp", "http://127.0.0.1:1/?of=all"])),
    (mcp.HEADER, st.sampled_from(["x-api-version", "X-Team"])),
    (kinds.DNS, st.sampled_from(["http://engines", "http://engines.example.com:8000"])),
    (
        kinds.ENDPOINT,
        st.integers(1, 65535).map(lambda port: kinds.parse_endpoint(f"http://127.0.0.1:{port}")),
    ),
]


def values(kind: Shape) -> st.SearchStrategy[Any]:
    """Any value of a setting of this kind."""
    if isinstance(kind, Kind):
        words = [strategy for known, strategy in LEAVES if known is kind]
        if "anyOf" in kind.schema:  # a number, or a word for none
            return st.integers(0, 10**9 - 1)
        if "maximum" in kind.schema:
            return st.integers(kind.schema["minimum"], kind.schema["maximum"])
        return words[0] if words else st.sampled_from(kind.schema["enum"])
    if isinstance(kind, Listed):
        return st.lists(values(kind.item), min_size=kind.length_min, max_size=3, unique=kind.distinct).map(
            tuple
        )
    if isinstance(kind, Mapped):
        return st.dictionaries(values(kind.name), values(kind.item), max_size=3)
    if isinstance(kind, Forms):
        return st.one_of(*(values(shape) for shape in kind.shapes))
    if isinstance(kind, Chosen):
        return st.sampled_from(sorted(kind.family)).flatmap(lambda name: pieces(kind, name))
    fields = {}
    for field in fields_of(kind):
        some = values(field.setting.kind)
        optional = not field.required and field.default is None
        fields[field.name] = some | st.none() if optional else some
    return st.fixed_dictionaries(fields).map(lambda drawn: made(kind, drawn))


def pieces(kind: Chosen, name: str) -> st.SearchStrategy[Piece]:
    """Any piece of this name that can be made."""
    options = {option.field: values(option.kind) for option in options_of(kind.family[name]).values()}

    def piece(given: dict[str, Any], weight: float) -> Piece:
        made(kind.family[name], given)
        return Piece(name, tuple(given.items()), weight if kind.weighted else 1.0)

    return st.builds(piece, st.fixed_dictionaries({}, optional=options), values(kinds.RATIO))


def made(section: type[Struct], drawn: dict[str, Any]) -> Struct:
    """The section, unless it says itself that its values exclude each other."""
    try:
        return section(**drawn)
    except ValueError:
        reject()


def loadable(config: Config) -> Config:
    """The nearest tree that the loader may give: names differ, the engines are named in one way, …"""
    drain, token = structs.replace(config.drain, grace_s=None), config.admin.token
    admin = structs.replace(config.admin, token=EnvSecret("TOKEN") if token else None)
    config = structs.replace(config, drain=drain, admin=admin)
    if isinstance(config.auth, Auth):
        let_in = structs.replace(config.auth, keys="store", pepper=EnvSecret("TOKEN"))
        if let_in.jwt is not None and let_in.jwt.jwks is None:
            let_in = structs.replace(let_in, jwt=None)
        config = structs.replace(config, auth=let_in)
    if not isinstance(config.store.url, str):  # budgets need one
        config = structs.replace(config, store=Store(EnvSecret("TOKEN")))
    models = []
    for index, model in enumerate(config.models):
        aliases = tuple(f"{alias}{index}.{place}" for place, alias in enumerate(model.aliases))
        price = structs.replace(model.price, output=model.price.output or 1)  # budgets in money need one
        cache = structs.replace(model.cache, secret=EnvSecret("TOKEN") if model.cache.secret else None)
        name = f"{model.name}{index}"
        models.append(structs.replace(model, name=name, aliases=aliases, price=price, cache=cache))
    bands = tuple(
        structs.replace(band, name=f"{band.name}{index}", share_min=band.share_min // 0.04 / 100)
        for index, band in enumerate(config.bands)
    )
    names = tuple(band.name for band in bands)
    money = {} if models else {"usd_per_day": None, "usd_per_month": None}
    labels = tuple(config.mcp.servers)
    tenants = {
        name: structs.replace(tenant, bands=names, mcp=labels, budget=structs.replace(tenant.budget, **money))
        for name, tenant in {**config.tenants, "": config.default_tenant}.items()
    }
    default_tenant = structs.replace(tenants.pop(""), bands=names[:1])
    servers = {
        label: structs.replace(
            server,
            authorization=EnvSecret("TOKEN") if server.authorization else None,
            headers={name: EnvSecret("TOKEN") for name in server.headers},
        )
        for label, server in config.mcp.servers.items()
    }
    config = structs.replace(config, mcp=structs.replace(config.mcp, servers=servers))
    config = structs.replace(config, bands=bands, tenants=tenants, default_tenant=default_tenant)
    if models:
        return structs.replace(config, models=tuple(models), endpoints=())
    tenants = {name: moneyless(tenant) for name, tenant in tenants.items()}
    config = structs.replace(config, tenants=tenants, default_tenant=moneyless(default_tenant))
    return structs.replace(config, endpoints=config.endpoints or ("http://h",))


def moneyless(tenant: Tenant) -> Tenant:
    budget = structs.replace(tenant.budget, usd_per_day=None, usd_per_month=None)
    return structs.replace(tenant, budget=budget)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("show") / "maitred.yaml"


@settings(max_examples=60)
@given(config=values(Config).map(loadable))
def test_what_is_shown_loads_to_an_equal_tree(path: Path, config: Config) -> None:
    path.write_text(show(config), encoding="utf-8")
    assert load(path, environ={"TOKEN": "0123456789abcdef"}) == config


def test_a_secret_is_shown_by_its_place(tmp_path: Path) -> None:
    kept = tmp_path / "token"
    kept.write_text("canary-0123456789")
    secrets: list[Secret] = [EnvSecret("TOKEN"), FileSecret(kept)]
    shown = [show(Config(endpoints=("http://h",), admin=Admin(token=secret))) for secret in secrets]
    assert [yaml.safe_load(text)["admin"]["token"] for text in shown] == [
        {"env": "TOKEN"},
        {"file": str(kept)},
    ]
    assert "canary" not in "".join(shown)


def test_units_are_written_out_and_what_is_unset_is_left_out() -> None:
    shown = show(Config(models=(Model(name="groß", endpoints=("http://h",)),)))
    assert "name: groß\n" in shown
    data = yaml.safe_load(shown)
    assert data["http"] == {
        "body_max": "64MiB",
        "inflated_max": "16MiB",
        "head_max": "64KiB",
        "headers_max": 128,
        "head_timeout": "10s",
        "body_timeout": "30s",
        "keep_alive": "620s",
        "write_timeout": "1m",
        "cors": [],
    }
    assert data["models"][0]["queue"] == {"wait": "30s", "requests": 2048, "bytes": "256MiB"}
    assert not data.keys() & {"auth", "endpoints", "journal"}


def described(body: dict[str, Any], at: str = "") -> dict[str, dict[str, Any]]:
    """Every leaf of the schema by its path; each object on the way must be closed."""
    found: dict[str, dict[str, Any]] = {}
    assert body["additionalProperties"] is False
    assert body["required"] == [key for key in body["properties"] if key in body["required"]]
    for key, value in body["properties"].items():
        assert value["description"].endswith(".")
        items = value.get("items", {})
        if "properties" in (value.get("additionalProperties") or {}):
            found |= described(value["additionalProperties"], f"{at}{key}.NAME.")
        elif "properties" in value:
            found |= described(value, f"{at}{key}.")
        elif items.get("type") == "object":
            found |= described(items, f"{at}{key}[].")
        else:
            found[at + key] = value
            if at + key in {"auth", "models[].routing"}:
                found |= described(value["anyOf"][1], f"{at}{key}.")
    return found


def test_the_schema_describes_every_setting() -> None:
    body = schema()
    assert body["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert body["required"] == ["version"]
    found = described(body)
    assert list(found) == [path for path, _ in leaves(Config)]
    assert found["http.body_max"] == {
        "type": "string",
        "pattern": "^[0-9]{1,9}(GiB|GB|MiB|MB|KiB|KB|B)$",
        "description": "Largest request body.",
        "default": "64MiB",
    }
    assert found["models[].queue.requests"]["description"].endswith("Default: 8 x `cap`, 2048 with `auto`.")
    assert "default" not in found["models[].queue.requests"]
    urls, file, dns = found["models[].endpoints"]["anyOf"]
    assert (urls["type"], urls["minItems"]) == ("array", 1)
    assert (file["required"], dns["required"]) == (["file"], ["dns"])
    assert dns["properties"]["ttl"]["default"] == "10s"
    name, *pieces = found["models[].routing.scorers"]["items"]["anyOf"]
    assert name["enum"] == [piece["properties"]["name"]["const"] for piece in pieces]
    assert list(pieces[name["enum"].index("session")]["properties"]) == ["name", "weight", "slack"]
    assert body["properties"]["models"]["items"]["required"] == ["name", "endpoints"]
    assert body["properties"]["http"]["description"] == "Limits on what clients send and how they take it."
