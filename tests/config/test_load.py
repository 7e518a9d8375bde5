"""Loading: the plan's example, every error by example, and who overrides whom."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from maitred.config.auth import Auth, Store
from maitred.config.kinds import Address
from maitred.config.load import environment_names, load
from maitred.config.raw import ConfigError
from maitred.config.secret import EnvSecret
from maitred.config.tree import (
    STEERING_FIELDS,
    Config,
    EndpointsDns,
    EndpointsFile,
    Health,
    Model,
    Scrape,
    Slo,
)

MINIMAL = "version: 1\nendpoints: [http://127.0.0.1:8001]\n"
ENGINES = {"endpoints": ("http://127.0.0.1:8001",)}
EXAMPLE = """\
version: 1
models:
  - name: qwen3-32b                  # what clients say
    endpoints: [http://127.0.0.1:8001, http://127.0.0.1:8002]
    slo: {ttft: 2s, tpot: 50ms}      # cap, early refusal and goodput follow from these
"""

Load = Callable[..., Config]


@pytest.fixture
def load_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    monkeypatch.chdir(tmp_path)

    def load_text(content: str, *, environ: Mapping[str, str] | None = None, **overrides: object) -> Config:
        path = Path("maitred.yaml")
        path.write_text(content)
        return load(
            path,
            {key.replace("__", "."): value for key, value in overrides.items()},
            environ=environ or {"SHORT": "0123456789abcde"},
        )

    return load_text


def errors_of(load: Load, *args: object, **options: object) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(*args, **options)
    assert str(caught.value) == "\n".join(caught.value.errors)
    return caught.value.errors


def test_the_example_loads(load_text: Load) -> None:
    model = Model(
        name="qwen3-32b",
        endpoints=("http://127.0.0.1:8001", "http://127.0.0.1:8002"),
        slo=Slo(ttft_s=2.0, tpot_s=0.05),
    )
    assert load_text(EXAMPLE) == Config(models=(model,))


def test_no_file_is_needed() -> None:
    assert load(None, ENGINES, environ={}) == Config(endpoints=("http://127.0.0.1:8001",))


def test_an_empty_key_is_as_good_as_left_out(load_text: Load) -> None:
    assert load_text(MINIMAL + "http:\nauth: null\njournal:\nlisten: {data: }\n") == load_text(MINIMAL)


def test_every_setting_reaches_its_field(load_text: Load) -> None:
    config = load_text(
        "version: 1\n"
        "listen: {data: '[::1]:0'}\n"
        "models: [{name: a, aliases: [b], served_as: c, endpoints: ['http://h/'], cap: 4,\n"
        "  queue: {wait: 1s}}]\n"
        "http: {body_max: 1KiB, inflated_max: 2KiB, headers_max: 2k, cors: ['HTTPS://Chat.example.com:443']}\n"
        "upstream: {hold: 0s, attempts: 3}\n"
        "log: {format: json, access: false}\n"
        "admin: {hosts: [Gateway.Example.com]}\n"
        "trust: {fields: [priority]}\n"
        "media: {domains: [IMG.example.com]}\n"
        "health: {failures: 2, slow_start: 0s, generate: false, probe_timeout: 1s, quarantine: 1m}\n"
        "scrape: {period: 1s, timeout: 500ms}\n"
        "journal: {file: j}\n"
    )
    model = config.models[0]
    assert (model.aliases, model.served_as, model.endpoints, model.cap) == (("b",), "c", ("http://h",), 4)
    assert (model.queue.wait_s, model.queue.requests_max) == (1.0, 32)
    assert config.listen.data == Address("::1", 0)
    http = config.http
    assert (http.body_bytes_max, http.inflated_bytes_max, http.headers_max) == (1024, 2048, 2000)
    assert (config.upstream.hold_s, config.upstream.attempts) == (0.0, 3)
    assert (config.log.format, config.log.access) == ("json", False)
    assert config.http.cors == ("https://chat.example.com",)
    assert config.admin.hosts == ("gateway.example.com",)
    assert (config.trust.fields, config.media.domains) == (("priority",), ("img.example.com",))
    assert config.health == Health(2, 0.0, generate=False, probe_timeout_s=1.0, quarantine_s=60.0)
    assert config.scrape == Scrape(1.0, 0.5)
    assert config.journal is not None
    assert config.journal.file == Path("j")


BROKEN = {
    # a whole file: what is said, without the file's name
    "": """
        1: no engine is named; write models: or endpoints:
        1: version is missing; write version: 1""",
    "endpoints: [http://h]": """
        1: version is missing; write version: 1""",
    "version: 2\nendpoints: [http://h]": """
        1 version: '2' is not a version this program reads; write 1""",
    "version: 1\nmodels: []": """
        1: no engine is named; write models: or endpoints:""",
    "version: 1\nmodels: [{name: a,\n endpoints: [http://h, 'htp://h']}]": """
        3 models[0].endpoints[1]: 'htp://h': scheme must be http or https""",
    "version: 1\nmodels:\n- {name: a, endpoints: [http://h],\n  slo: {ttft: 2}}": """
        4 models[0].slo.ttft: 2 has no unit; write 2s""",
    "version: 1\nmodels:\n- {name: }": """
        3 models[0]: name is missing; write name: qwen3-32b
        3 models[0]: endpoints is missing; write endpoints: [http://127.0.0.1:8001]""",
    "version: 1\nmodels:\n- {name: a, endpoints: []}": """
        3 models[0].endpoints: is empty; write at least one""",
    "version: 1\nmodels:\n- {name: a, endpoints: [http://h, 'http://H:80/']}": """
        3 models[0].endpoints[1]: 'http://h' is in this list already; leave one out""",
    """version: 1
models:
- {name: a, aliases: [b], endpoints: [http://h]}
- {name: b, aliases: [c, c], endpoints: [http://h]}""": """
        4 models[1].name: 'b' is already used at models[0].aliases[0]; names must differ
        4 models[1].aliases[1]: 'c' is already used at models[1].aliases[0]; names must differ""",
    MINIMAL + "tenants: [a]": """
        3 tenants: must be a mapping of names, each with its settings""",
    MINIMAL
    + "tenants: {a: {budget: {}}, b: {budget: {tokens_per_day: 1}}}\n"
    + "default_tenant:\n  budget: {tokens_per_day: 1}": """
        3 tenants.b.budget: what was spent would be forgotten at a restart, so it needs a store; \
write store: {url: sqlite:///maitred.db}
        5 default_tenant.budget: what was spent would be forgotten at a restart, so it needs a store; \
write store: {url: sqlite:///maitred.db}""",
    "version: 1\nmodels: [{name: a, endpoints: [http://h], budget: {tokens_per_day: 1}}]": """
        2 models[0].budget: what was spent would be forgotten at a restart, so it needs a store; \
write store: {url: sqlite:///maitred.db}""",
    MINIMAL
    + "store: {url: sqlite:///maitred.db}\n"
    + "tenants: {a: {weight: 0, limits: {tokens_per_min: 2G}, budget: {usd_per_month: $5}}}": """
        4 tenants.a.weight: 0 is too small; write more than zero
        4 tenants.a.limits.tokens_per_min: '2G' is not a count; \
write a whole number with no unit, k or M, such as 256
        4 tenants.a.budget.usd_per_month: '$5' is no sum of USD; write a number such as 2000 or 0.15""",
    "version: 1\nmodels: [{name: a, endpoints: [http://h]}]\n"
    "store: {url: 'sqlite:///maitred.db'}\n"
    "tenants: {a: {budget: {usd_per_day: 1}}}": """
        4 tenants.a.budget.usd_per_day: counts nothing while no model has a price; \
write price: {prompt: 0.15, output: 0.6} for each in models""",
    MINIMAL
    + "default_tenant: {limits: {requests_per_min: 0, concurrent: 0}}\n"
    + "store: {url: 'sqlite:///maitred.db'}\n"
    + "tenants: {a: {budget: {usd_per_day: 0.00, usd_per_month: 0, tokens_per_day: 0}}}": """
        3 default_tenant.limits.requests_per_min: 0 is too small; write more than zero
        3 default_tenant.limits.concurrent: 0 is too small; write more than zero
        5 tenants.a.budget.usd_per_day: 0.00 is too small; write more than zero
        5 tenants.a.budget.usd_per_month: 0 is too small; write more than zero
        5 tenants.a.budget.tokens_per_day: 0 is too small; write more than zero""",
    MINIMAL
    + "store: {url: 'sqlite:///maitred.db'}\n"
    + "tenants: {a: {budget: {usd_per_day: 1, tokens_per_day: 9}}, b: {budget: {usd_per_month: 2}}}\n"
    + "default_tenant: {budget: {usd_per_day: 3}}": """
        4 tenants.a.budget.usd_per_day: counts nothing while no model has a price; \
write price: {prompt: 0.15, output: 0.6} for each in models
        4 tenants.b.budget.usd_per_month: counts nothing while no model has a price; \
write price: {prompt: 0.15, output: 0.6} for each in models
        5 default_tenant.budget.usd_per_day: counts nothing while no model has a price; \
write price: {prompt: 0.15, output: 0.6} for each in models""",
    """version: 1
store: {url: 'sqlite:///maitred.db'}
models:
- {name: a, endpoints: [http://h], price: {output: 1}, budget: {usd_per_day: 1}}
- {name: b, endpoints: [http://h], price: {output: 0}, budget: {usd_per_day: 1, tokens_per_day: 1}}
tenants: {a: {budget: {usd_per_day: 1}}}""": """
        5 models[1].budget.usd_per_day: counts nothing while the model has no price; \
write price: {prompt: 0.15, output: 0.6} beside it""",
    MINIMAL + "tenants: {a.b: {bands: [chat]}}\ndefault_tenant: {bands: [default, dflt]}": """
        3 tenants.a.b.bands[0]: no band is named 'chat'; there are default
        4 default_tenant.bands[1]: no band is named 'dflt'; there are default""",
    MINIMAL
    + "bands: [{name: a, share_min: 60%}, {name: b, share_min: 41%}, {name: a}]\n"
    + "tenants: {t: {bands: [c]}}": """
        3 bands[2].name: 'a' is the name of a band already; names must differ
        3 bands[0]: share_min of all bands is 101% together; write 100% or less in all
        4 tenants.t.bands[0]: no band is named 'c'; there are a, b""",
    MINIMAL + "bands: [{name: a, share_min: 10}]": """
        3 bands[0].share_min: 10 has no unit; write 10%""",
    "version: 1\nmodels: [{name: a, endpoints: [http://h], cap: none, limits: {output: 9, context: 8}}]": """
        2 models[0].cap: 'none' is not a count; write a whole number with no unit, k or M, \
such as 256, or auto
        2 models[0].limits: output (9) must not be more than context (8)""",
    EXAMPLE + "endpoints: [http://h]": """
        6 endpoints[0]: both endpoints and models are set; leave one out""",
    "version: 1\nendpoints: http://h": """
        2 endpoints: must be a list, each item behind a dash or all within [ ]""",
    "version: 1\nendpoints: [null]": """
        2 endpoints[0]: must be one value, such as http://127.0.0.1:8001""",
    MINIMAL + "listen: {data: 0.0.0.0:8000}": """
        3 listen.data: 0.0.0.0:8000 is open to other machines and auth is not set; \
write auth: none to let everybody in, or listen on 127.0.0.1""",
    MINIMAL + "auth: none\nadmin:\n  listen: '[::]:9000'": """
        5 admin.listen: [::]:9000 is open to other machines and admin.token is not set; \
write token: {env: MAITRED_ADMIN_TOKEN}, or listen on 127.0.0.1:9000""",
    MINIMAL + "admin: {token: canary-0123456789}": """
        3 admin.token: must be {env: NAME} or {file: PATH}; the secret itself is never written here""",
    MINIMAL + "admin: {token: {env: canary-0123456789}}": """
        3 admin.token.env: what is written here is no name of a variable (letters, digits and _); \
it is not repeated in case it is a secret""",
    MINIMAL + "admin: {token: {env: NOWHERE}}": """
        3 admin.token: the environment variable named there is not set""",
    MINIMAL + "admin: {token: {env: SHORT}}": """
        3 admin.token: the environment variable named there must hold 16 to 4096 printable ASCII characters \
without spaces""",
    MINIMAL + "admin: {token: {file: none}}": """
        3 admin.token: the file named there: No such file or directory""",
    MINIMAL + "admin: {token: {file: 'canary-0123456789 '}}": """
        3 admin.token.file: what is written here is no path of a file; \
it is not repeated in case it is a secret""",
    MINIMAL + "admin: {token: {env: A, file: b}}": """
        3 admin.token.file: unknown key; known here: env
        3 admin.token: the environment variable named there is not set""",
    MINIMAL + "admin: {hosts: ['*.example.com', 10.0.0.1, 'gw:9000']}": """
        3 admin.hosts[0]: '*.example.com' is no host name; write one such as cdn.example.com
        3 admin.hosts[1]: '10.0.0.1' is an address; write a host name such as cdn.example.com
        3 admin.hosts[2]: 'gw:9000' is no host name; write one such as cdn.example.com""",
    MINIMAL + "http: {cors: ['*', chat.example.com, https://a/b]}": """
        3 http.cors[0]: '*' would let every web page in; write each origin, such as https://chat.example.com
        3 http.cors[1]: 'chat.example.com': scheme must be http or https; \
write such as https://chat.example.com
        3 http.cors[2]: 'https://a/b': must have no path; write https://a""",
    MINIMAL + "trust: {fields: [prioritty]}": f"""
        3 trust.fields[0]: 'prioritty' is not known; write {" or ".join(STEERING_FIELDS)}""",
    MINIMAL + "drain: {notice: 10s, grace: 30s}": """
        3 drain.grace: the process is killed after 30s, before drain.notice (10s) and drain.limit (2m) \
have passed; write a lower limit, or have the platform wait longer""",
    "version: 1\nmodels: [{name: a, endpoints: http://h}]": """
        2 models[0].endpoints: must be a list of URLs, {file: PATH} or {dns: http://name:port}""",
    "version: 1\nmodels: [{name: a, endpoints: {fil: x}}]": """
        2 models[0].endpoints: must be a list of URLs, {file: PATH} or {dns: http://name:port}""",
    "version: 1\nmodels: [{name: a, endpoints: {file: x, ttl: 1s}}]": """
        2 models[0].endpoints.ttl: unknown key; known here: file""",
    "version: 1\nmodels: [{name: a, endpoints: {dns: https://h:1}}]": """
        2 models[0].endpoints.dns: 'https://h:1': scheme must be http, because certificates name hosts and \
DNS gives addresses; list https endpoints by name""",
    "version: 1\nmodels: [{name: a, endpoints: {dns: 'http://[::1]:1'}}]": """
        2 models[0].endpoints.dns: 'http://[::1]:1': must be a name; write a list of addresses instead""",
    "version: 1\nmodels: [{name: a, endpoints: {dns: 'http://10.0.0.1:1', ttl: 10}}]": """
        2 models[0].endpoints.dns: 'http://10.0.0.1:1': must be a name; write a list of addresses instead
        2 models[0].endpoints.ttl: 10 has no unit; write 10s""",
    MINIMAL + "auth: keys\nlisten: {data: 0.0.0.0:8000}": """
        3 auth: 'keys' is not known; write none""",
    MINIMAL + "auth: {keys: store}": """
        3 auth: pepper is missing; write pepper: {env: MAITRED_AUTH_PEPPER}, and keep in it what \
`openssl rand -hex 32` prints""",
    MINIMAL + "auth: {keys: stor, pepper: {env: SHORT}}": """
        3 auth.keys: 'stor' is not known; write store
        3 auth.pepper: the environment variable named there must hold 16 to 4096 printable ASCII characters \
without spaces""",
    "version: 1\nmodels: [{name: a, endpoints: [http://h], cache: {isolate: yes, secret: {env: SHORT}}}]": """
        2 models[0].cache.isolate: 'yes' is not known; write none or tenant
        2 models[0].cache.secret: the environment variable named there must hold 16 to 4096 printable ASCII \
characters without spaces""",
    MINIMAL + "auth: {refresh: 2s}": """
        3 auth: lets nobody in; write keys: store, or jwt:, or auth: none""",
    MINIMAL + "auth: [none]": """
        3 auth: must be none, or a mapping such as {keys: store, pepper: …}""",
    MINIMAL + "auth: {jwt: {issuer: a, audience: b, jwks: 'http://sso/keys', algorithms: [HS256]}}": """
        3 auth.jwt.jwks: 'http://sso/keys': scheme must be https beyond this machine
        3 auth.jwt.algorithms[0]: 'HS256' is not known; write RS256 or RS384 or RS512 or PS256 or PS384 or \
PS512 or ES256 or ES384 or ES512 or EdDSA""",
    MINIMAL + "auth: {jwt: {jwks: 'ftp://sso/keys', algorithms: []}}": """
        3 auth.jwt.jwks: 'ftp://sso/keys' is no URL of a key set; write such as \
https://sso.example.com/.well-known/jwks.json
        3 auth.jwt.algorithms: is empty; write at least one
        3 auth.jwt: issuer is missing; write issuer: https://sso.example.com
        3 auth.jwt: audience is missing; write audience: maitred""",
    MINIMAL + "auth: {jwt: {issuer: sso, audience: b}}": """
        3 auth.jwt.issuer: 'sso' is no URL to ask for its keys; write jwks: too""",
    MINIMAL + "store: {url: 'postgresql://me:canary@db/m'}": """
        3 store.url: must be sqlite:///maitred.db or another SQLite file, or {env: NAME} or {file: PATH} \
where the URL of a PostgreSQL is kept; what is written is not repeated in case it holds a password""",
    MINIMAL + "store: {url: {env: NOWHERE}}": """
        3 store.url: the environment variable named there is not set""",
    MINIMAL + "lisen: {data: 127.0.0.1:1}": """
        3 lisen: unknown key; did you mean listen?""",
    MINIMAL + "drain: {xyz:}": """
        3 drain.xyz: unknown key; known here: notice, limit, grace""",
    MINIMAL + "http: 5": """
        3 http: must be a mapping with keys such as body_max""",
    MINIMAL + "journal: {bytes_max: 1GB}": """
        3 journal: file is missing; write file: maitred.journal""",
    MINIMAL + "upstream: {attempts: 0}": """
        3 upstream.attempts: 0 is too small; write more than zero""",
    MINIMAL + "log: {level: 'no\n\n  way'}": r"""
        3 log.level: 'no\nway' is not known; write debug or info or warning or error""",
}


@pytest.mark.parametrize(("content", "said"), BROKEN.items())
def test_errors_by_example(load_text: Load, content: str, said: str) -> None:
    wanted = [f"maitred.yaml:{line.strip()}" for line in said.strip().splitlines()]
    assert errors_of(load_text, content) == wanted


def test_a_file_that_is_no_mapping(load_text: Load) -> None:
    assert "maitred.yaml:1: must be a mapping with keys such as version" in errors_of(load_text, "- 1\n")


def test_all_errors_come_at_once_in_the_order_of_the_file(load_text: Load) -> None:
    content = (
        "version: 1\nhttp: {body_max: 64, body_max: 1}\nlog: {leve: info}\n"
        "models: [{name: a, cap: x}]\nauth: no\n"
    )
    assert [error.split(": ")[0] for error in errors_of(load_text, content)] == [
        "maitred.yaml:2 http.body_max",  # twice
        "maitred.yaml:2 http.body_max",  # no unit
        "maitred.yaml:3 log.leve",
        "maitred.yaml:4 models[0].cap",
        "maitred.yaml:4 models[0]",
        "maitred.yaml:5 auth",
    ]


def test_flags_override_the_environment_which_overrides_the_file(load_text: Load) -> None:
    content = MINIMAL + "drain: {notice: 1s, limit: wrong}\n"
    environ = {"MAITRED_DRAIN_NOTICE": "2s", "MAITRED_DRAIN_LIMIT": "2m", "MAITRED_LOG_LEVEL": "wrong"}
    config = load_text(content, environ=environ, drain__notice="3s", log__level="error", log__access=False)
    assert (config.drain.notice_s, config.drain.limit_s) == (3.0, 120.0)
    assert (config.log.level, config.log.access) == ("error", False)


def test_flags_not_given_change_nothing(load_text: Load) -> None:
    assert load_text(MINIMAL, listen__data=None, endpoints=()) == load_text(MINIMAL)


def test_environment_errors_name_the_variable() -> None:
    environ = {"MAITRED_LISTEN_DATA": "8000", "MAITRED_HTTP_BODY_MAX": "64", "MAITRED_AUTH": ""}
    assert errors_of(load, None, ENGINES, environ=environ) == [
        "environment MAITRED_LISTEN_DATA: '8000' is not an address; write host:port, such as 127.0.0.1:8000",
        "environment MAITRED_AUTH: '' is not known; write none",
        "environment MAITRED_HTTP_BODY_MAX: 64 has no unit; write 64MiB",
    ]


def test_flag_errors_name_the_flag() -> None:
    overrides = {"endpoints": ["http://h", "h"], "http.body_max": 5, "http.headers": 1}
    assert errors_of(load, None, overrides, environ={}, labels={"endpoints": "argument URL"}) == [
        "argument URL[1]: 'h': scheme must be http or https; write such as http://127.0.0.1:8001",
        "flag --http-body-max: 5 has no unit; write 5MiB",
        "flag --http-headers: unknown key; did you mean headers_max?",
    ]


def test_the_process_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAITRED_LOG_FORMAT", "json")
    assert load(None, ENGINES).log.format == "json"


def test_only_single_values_outside_models_have_environment_names() -> None:
    names = environment_names()
    assert names["MAITRED_LISTEN_DATA"] == "listen.data"
    assert names["MAITRED_JOURNAL_FILE"] == "journal.file"
    assert not names.keys() & {"MAITRED_VERSION", "MAITRED_ENDPOINTS", "MAITRED_MODELS", "MAITRED_PORT"}
    assert not names.keys() & {"MAITRED_HTTP_CORS", "MAITRED_ADMIN_HOSTS", "MAITRED_ADMIN_URL"}
    assert len(names) == 82


def test_keys_need_no_file() -> None:
    environ = {"MAITRED_AUTH_KEYS": "store", "MAITRED_AUTH_PEPPER": "0123456789abcdef"}
    environ |= {"MAITRED_STORE_URL": "sqlite:///m", "MAITRED_LISTEN_DATA": "0.0.0.0:1"}
    config = load(None, ENGINES, environ=environ)
    assert config.auth == Auth(keys="store", pepper=EnvSecret("MAITRED_AUTH_PEPPER"))
    assert config.store == Store(EnvSecret("MAITRED_STORE_URL"))


def test_the_variable_of_a_secret_is_its_place(load_text: Load) -> None:
    environ = {"MAITRED_ADMIN_TOKEN": "0123456789abcdef"}
    token = EnvSecret("MAITRED_ADMIN_TOKEN")
    assert load(None, ENGINES, environ=environ).admin.token == token
    over = load_text(MINIMAL + "admin: {listen: '0.0.0.0:9000', token: {file: gone}}", environ=environ)
    assert over.admin.token == token
    [error] = errors_of(load, None, ENGINES, environ={"MAITRED_ADMIN_TOKEN": ""})
    variable = "the environment variable named there"
    assert error.startswith(f"environment MAITRED_ADMIN_TOKEN: {variable} must hold 16 to 4096 printable")


@pytest.mark.parametrize("extra", ["", " ", "-", "/", "\\t", "0" * 300])
@pytest.mark.parametrize(
    "form", ["{}", "[{}]", "{{{}}}", "{{env: {}}}", "{{file: {}}}", "{{env: [{}]}}", "{{file: {{{}}}}}"]
)
def test_a_secret_written_by_mistake_is_never_repeated(load_text: Load, form: str, extra: str) -> None:
    written = form.format(f'"c0ffee0123456789{extra}"')
    errors = errors_of(load_text, MINIMAL + f"admin: {{token: {written}}}\n")
    assert errors[0].startswith("maitred.yaml:3 admin.token")
    assert "c0ffee" not in "".join(errors)


def test_the_other_forms_of_endpoints(load_text: Load) -> None:
    config = load_text(
        "version: 1\nmodels:\n- {name: a, endpoints: {file: a.yaml}}\n"
        "- {name: b, endpoints: {dns: 'HTTP://B:80/', ttl: 1m}}\n- {name: c, endpoints: {dns: http://c:8000}}\n"
    )
    assert [model.endpoints for model in config.models] == [
        EndpointsFile(Path("a.yaml")),
        EndpointsDns("http://b", 60.0),
        EndpointsDns("http://c:8000", 10.0),
    ]


def test_a_platform_that_waits_as_long_as_we_need_is_long_enough(load_text: Load) -> None:
    config = load_text(MINIMAL + "drain: {notice: 10s, limit: 20s, grace: 30s}\n")
    assert config.drain.grace_s == 30.0


def test_a_journal_can_be_set_by_the_environment_alone() -> None:
    journal = load(None, ENGINES, environ={"MAITRED_JOURNAL_FILE": "j"}).journal
    assert journal is not None
    assert journal.file == Path("j")


def test_an_engine_of_which_more_is_said_has_to_be_among_the_endpoints(load_text: Load) -> None:
    text = "version: 1\nmodels:\n  - {name: a, endpoints: ['http://h:1'], engines: [{endpoint: 'HTTP://H:1/'}]}\n"
    assert load_text(text).models[0].engines[0].endpoint == "http://h:1"
    [error] = errors_of(load_text, text.replace("H:1/", "i:1"))
    assert error == "maitred.yaml:3 models[0]: http://i:1 in engines is none of its endpoints"
