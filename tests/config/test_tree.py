"""The tree: defaults that follow from others, what the core is told, and that the documentation is whole."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from maitred.config.flow import Band, Budget, ModelLimits, Price, Rates, Tenant
from maitred.config.load import load
from maitred.config.place import Engine
from maitred.config.raw import ConfigError
from maitred.config.setting import Forms, fields_of, leaves
from maitred.config.show import default_words
from maitred.config.tree import STEERING_FIELDS, Config, Health, Model, Queue, Slo, Upstream
from maitred.core.limits import FREE, UNLIMITED, Limits
from maitred.core.limits import Price as CorePrice
from maitred.core.words import BandSettings, HealthSettings, Place, PoolSettings, Settings, TenantSettings

DOCS = Path(__file__).parents[2] / "docs" / "configuration.md"


def fences(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", DOCS.read_text(), re.DOTALL)


def test_defaults_that_follow_from_others() -> None:
    model = Model(name="a", endpoints=("http://h",), cap=10)
    assert (model.served_as, model.queue.requests_max) == ("a", 80)
    model = Model(name="a", endpoints=("http://h",), served_as="b", queue=Queue(requests_max=5))
    assert (model.served_as, model.queue.requests_max) == ("b", 5)


def test_the_core_gets_a_pool_for_each_model() -> None:
    model = Model(
        name="a", endpoints=("http://h",), cap=2, queue=Queue(wait_s=1.0, requests_max=3, bytes_max=4)
    )
    health = Health(failures_max=3, slow_start_s=2.0, quarantine_s=1.0)
    config = Config(models=(model,), upstream=Upstream(attempts=7), health=health)
    pool = PoolSettings(cap=2, queue_requests_max=3, queue_bytes_max=4, queue_wait_s=1.0)
    assert config.core_settings() == Settings(
        pools={"a": pool},
        attempts_max=7,
        health=HealthSettings(failures_max=3, slow_start_s=2.0, quarantine_s=1.0),
    )


def test_the_core_gets_what_is_said_of_single_engines() -> None:
    far, slow = "http://far:1", "http://slow:1"
    engines = (Engine(far, zone="y"), Engine(slow, prefill_rate=3000))
    model = Model("a", ("http://h:1", far, slow), prefill_rate=9000, engines=engines)
    pool = Config(models=(model,), zone="x").core_settings().pools["a"]
    assert (pool.speed, pool.zone) == (9000.0, "x")
    assert pool.places == {"a/far:1": Place("y"), "a/slow:1": Place(speed=3000.0)}


def test_a_model_with_defaults_is_the_core_s_default_pool() -> None:
    config = Config(models=(Model(name="a", endpoints=("http://h",)),))
    assert config.core_settings().pools["a"] == Settings().default


def test_the_core_gets_how_a_model_is_run() -> None:
    model = Model(
        name="a",
        endpoints=("http://h",),
        cap=0,
        saturation="kv-tokens",
        kv_reserve=0.2,
        fairness="strict",
        order="deadline",
        slo=Slo(ttft_s=2.0, tpot_s=0.05),
        limits=ModelLimits(requests_per_min=1, context=32_000),
        budget=Budget(usd_per_day=2),
        price=Price(prompt=3, output=4),
    )
    assert Config(models=(model,)).core_settings().pools["a"] == PoolSettings(
        cap=0,
        queue_requests_max=2048,
        saturation="kv-tokens",
        kv_reserve=0.2,
        fairness="strict",
        order="deadline",
        ttft_s=2.0,
        tpot_s=0.05,
        limits=Limits(requests_per_min=1, money_per_day=2),
        price=CorePrice(prompt=3, cached=3, output=4),
    )


def test_the_core_gets_bands_and_tenants() -> None:
    limits, budget = Rates(1, 2, 3, 4, 5), Budget(6, 7, 8, 9)
    tenant = Tenant(weight=2, bands=("chat",), limits=limits, budget=budget)
    config = Config(
        bands=(Band("chat", deadline_s=30.0), Band("batch", share_min=0.1, preempt=False)),
        tenants={"support": tenant, "nightly": Tenant()},
        default_tenant=Tenant(bands=("batch",)),
    )
    settings = config.core_settings()
    assert settings.bands == (BandSettings("chat", 30.0), BandSettings("batch", None, 0.1, preempt=False))
    assert settings.tenants["support"] == TenantSettings(2.0, ("chat",), Limits(1, 2, 3, 4, 5, 6, 7, 8, 9))
    assert settings.tenant.bands == ("batch",)


def test_what_is_not_limited_is_the_core_s_very_own_word_for_it() -> None:
    settings = Config(
        models=(Model(name="a", endpoints=("http://h",)),), tenants={"t": Tenant()}
    ).core_settings()
    pool = settings.pools["a"]
    assert settings.tenants["t"].limits == settings.tenant.limits == pool.limits == UNLIMITED
    assert pool.price is FREE


def test_every_setting_is_documented_and_nothing_else() -> None:
    rows = [line for line in DOCS.read_text().splitlines() if line.startswith("| `")]
    wanted = [
        f"| `{path}` | {default_words(field)} | {field.setting.doc} |" for path, field in leaves(Config)
    ]
    assert sorted(rows) == sorted(wanted)
    assert all(field.setting.doc.endswith(".") for _, field in leaves(Config))


def test_the_documented_examples_load(tmp_path: Path) -> None:
    *examples, _ = fences("yaml")
    assert len(examples) == 9
    for example in examples:
        path = tmp_path / "maitred.yaml"
        path.write_text(example)
        secrets = ("MAITRED_ADMIN_TOKEN", "MAITRED_AUTH_PEPPER", "MAITRED_STORE_URL", "GITHUB_MCP_TOKEN")
        environ = {name: "0123456789abcdef" for name in secrets if name in example}
        load(path, environ=environ)


def test_what_can_be_written_in_several_forms_is_documented_in_all_of_them() -> None:
    forms = {path: field.setting for path, field in leaves(Config) if isinstance(field.setting.kind, Forms)}
    assert forms.keys() == {
        *("admin.token", "models[].endpoints", "models[].tokens", "models[].routing", "store.url"),
        *("auth", "auth.pepper", "auth.jwt.jwks", "models[].cache.secret"),
        *("mcp.servers.NAME.authorization", "mcp.servers.NAME.approval"),
    }
    for setting in forms.values():
        assert isinstance(setting.kind, Forms)
        for shape in setting.kind.shapes:
            if isinstance(shape, type) and not setting.kind.nested:
                for field in fields_of(shape):
                    assert f"{field.setting.key}: " in setting.doc


def test_the_fields_of_trust_are_documented() -> None:
    assert all(f"`{name}`" in DOCS.read_text() for name in STEERING_FIELDS)


def test_the_documented_environment_loads() -> None:
    (line,) = fences("sh")
    environ = dict(word.split("=", 1) for word in line.split() if "=" in word)
    config = load(None, {"endpoints": ["http://h"]}, environ=environ)
    assert config.http.body_bytes_max == 16 * 1024**2


def test_the_documented_errors_are_what_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("maitred.yaml")
    path.write_text(fences("yaml")[-1])
    with pytest.raises(ConfigError) as caught:
        load(path, environ={})
    assert fences("text") == [f"{caught.value}\n"]


def test_the_examples_of_keys_and_tokens_load(tmp_path: Path) -> None:
    examples = re.findall(r"```yaml\n(.*?)```", (DOCS.parent / "keys.md").read_text(), re.DOTALL)
    assert len(examples) == 2
    for example in examples:
        path = tmp_path / "maitred.yaml"
        path.write_text(example)
        load(path, environ={"MAITRED_AUTH_PEPPER": "0123456789abcdef"} if "PEPPER" in example else {})
