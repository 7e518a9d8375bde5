"""File, environment and flags become one checked tree, or one list of everything that is wrong.

A flag overrides the environment, which overrides the file, which overrides the defaults. A value that was
overridden is never read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from maitred.config.auth import STORE_DEFAULT, Auth, parse_jwks
from maitred.config.kinds import Kind
from maitred.config.prices import WRITE, any_priced, unpriced
from maitred.config.raw import ConfigError, Raw, read_file
from maitred.config.reader import Reader
from maitred.config.secret import LENGTH_MIN, EnvSecret, FileSecret
from maitred.config.setting import Forms, Shape, leaves
from maitred.config.tree import Config
from maitred.config.units import print_duration, quote
from maitred.core.words import Settings


def load(
    path: Path | None,
    overrides: Mapping[str, object] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
) -> Config:
    """The effective tree; ConfigError lists everything that is wrong.

    `overrides` are flags by dotted path (`listen.data`); a value is text, a number, a switch, or a list for
    `endpoints`; None or an empty list means that the flag was not given. Errors about one begin with
    `flag --listen-data`, or with what `labels` says for its path. `environ` is the process's environment
    unless given; names in it that are no setting are left alone, because Kubernetes puts `MAITRED_PORT` and
    others there for a service called maitred.
    """
    environ = os.environ if environ is None else environ
    root, errors = read_file(path) if path else (Raw("configuration", None), [])
    secrets = {setting for setting, field in leaves(Config) if _is_secret(field.setting.kind)}
    for name, setting in environment_names().items():
        if name in environ:
            value = {"env": name} if setting in secrets else environ[name]
            root.put(setting, value, f"environment {name}")
    for setting, given in (overrides or {}).items():
        if given not in (None, (), []):
            label = (labels or {}).get(setting, f"flag --{re.sub('[._]', '-', setting)}")
            root.put(setting, given, label)
    config = Reader(errors).section(Config, root) or Config()
    errors += _contradictions(root, config)
    errors += _missing_secrets(root, config, environ)
    if path and not root.at("version"):
        errors.append(f"{root.where}: version is missing; write version: 1")
    errors = errors or [*_unpriced_budgets(root, config)]
    if errors:
        raise ConfigError(errors)
    return config


def environment_names() -> dict[str, str]:
    """The environment's name of each setting that has one, with its path: single values that are there once.

    The variable of a secret holds the secret itself, that of `store.url` the URL. `version` has none: it
    belongs to the file, and images like to set MAITRED_VERSION to their own.
    """
    return {
        "MAITRED_" + path.upper().replace(".", "_"): path
        for path, field in leaves(Config)
        if (_is_word(field.setting.kind) or _is_secret(field.setting.kind))
        and "[]" not in path
        and ".NAME." not in path
        and path != "version"
    }


def _is_word(shape: Shape) -> bool:
    """Whether one word can say it."""
    return isinstance(shape, Kind) or (isinstance(shape, Forms) and isinstance(shape.shapes[0], Kind))


def _is_secret(shape: Shape) -> bool:
    """Whether it can be kept in the environment."""
    return isinstance(shape, Forms) and EnvSecret in shape.shapes


def _contradictions(root: Raw, config: Config) -> Iterator[str]:
    """What is wrong between settings that are each right. A wrong value was replaced by its default."""
    models, endpoints = root.each("models"), root.each("endpoints")
    if not models and not endpoints:
        yield f"{root.where}: no engine is named; write models: or endpoints:"
    if models and endpoints:
        yield f"{endpoints[0].where}: both endpoints and models are set; leave one out"
    yield from _names_used_twice(models)
    yield from _bands(root, config)
    yield from _labels(root, config)
    yield from _open_ports(root, config)
    yield from _nobody_let_in(root, config)
    yield from _forgotten_budgets(root)
    drain = config.drain
    if drain.grace_s is not None and drain.notice_s + drain.limit_s > drain.grace_s:
        notice, limit, grace = map(print_duration, (drain.notice_s, drain.limit_s, drain.grace_s))
        where = next(filter(None, map(root.at, ("drain.grace", "drain.limit", "drain")))).where
        yield (
            f"{where}: the process is killed after {grace}, before drain.notice ({notice}) and drain.limit "
            f"({limit}) have passed; write a lower limit, or have the platform wait longer"
        )


def _names_used_twice(models: list[Raw]) -> Iterator[str]:
    names: dict[str, str] = {}
    for model in models:
        for name in (*model.each("name"), *model.each("aliases")):
            if isinstance(name.value, str) and names.setdefault(name.value, name.where) != name.where:
                place = names[name.value].rpartition(" ")[2]
                yield f"{name.where}: {quote(name.value)} is already used at {place}; names must differ"


def _bands(root: Raw, config: Config) -> Iterator[str]:
    """Bands named twice or not there, and more promised than there is."""
    bands = root.each("bands")
    known: list[str] = []
    for name in (name for band in bands for name in band.each("name")):
        if isinstance(name.value, str):
            if name.value in known:
                yield f"{name.where}: {quote(name.value)} is the name of a band already; names must differ"
            else:
                known.append(name.value)
    shares = round(100 * sum(band.share_min for band in config.bands))
    if shares > 100:
        yield f"{bands[0].where}: share_min of all bands is {shares}% together; write 100% or less in all"
    known = known or [band.name for band in Settings().bands]
    for tenant in _tenants(root):
        for band in tenant.each("bands"):
            if isinstance(band.value, str) and band.value not in known:
                yield f"{band.where}: no band is named {quote(band.value)}; there are {', '.join(known)}"


def _labels(root: Raw, config: Config) -> Iterator[str]:
    """Servers that a tenant may use and that are not there."""
    for label in (label for tenant in _tenants(root) for label in tenant.each("mcp")):
        if isinstance(label.value, str) and label.value not in config.mcp.servers:
            known = ", ".join(config.mcp.servers) or "none"
            yield f"{label.where}: no server of mcp.servers is called {quote(label.value)}; there are {known}"


def _tenants(root: Raw) -> list[Raw]:
    """What is written of each tenant, and of those not named."""
    tenants = root.at("tenants")
    named = tenants.value.values() if tenants and isinstance(tenants.value, dict) else ()
    return [*named, *root.each("default_tenant")]


def _forgotten_budgets(root: Raw) -> Iterator[str]:
    """Budgets of which every restart would forget what was spent. Where keys are kept there is a store."""
    if root.at("store.url") or root.at("auth.keys"):
        return
    for holder in (*root.each("models"), *_tenants(root)):
        if (budget := holder.at("budget")) is not None and budget.value:
            yield (
                f"{budget.where}: what was spent would be forgotten at a restart, so it needs a store; "
                f"write store: {{url: {STORE_DEFAULT}}}"
            )


def _unpriced_budgets(root: Raw, config: Config) -> Iterator[str]:
    """Budgets in money that would count nothing. Asked where all else is right: a wrong price is none."""
    for model, read in zip(root.each("models"), config.models, strict=True):
        if not any_priced([read]):
            for budget in _in_money(model):
                yield f"{budget.where}: counts nothing while the model has no price; {WRITE} beside it"
    if not any_priced(config.models):
        for budget in (budget for tenant in _tenants(root) for budget in _in_money(tenant)):
            yield f"{budget.where}: {unpriced(config.models)}"


def _in_money(holder: Raw) -> list[Raw]:
    return [*holder.each("budget.usd_per_day"), *holder.each("budget.usd_per_month")]


def _open_ports(root: Raw, config: Config) -> Iterator[str]:
    data, admin = config.listen.data, config.admin.listen
    if (written := root.at("listen.data")) and not data.is_loopback and not root.at("auth"):
        yield (
            f"{written.where}: {data} is open to other machines and auth is not set; "
            "write auth: none to let everybody in, or listen on 127.0.0.1"
        )
    if (written := root.at("admin.listen")) and not admin.is_loopback and not root.at("admin.token"):
        yield (
            f"{written.where}: {admin} is open to other machines and admin.token is not set; "
            f"write token: {{env: MAITRED_ADMIN_TOKEN}}, or listen on 127.0.0.1:{admin.port}"
        )


def _nobody_let_in(root: Raw, config: Config) -> Iterator[str]:
    written = root.at("auth")
    if written is None or not isinstance(config.auth, Auth):
        return
    if not root.at("auth.keys") and not root.at("auth.jwt"):
        yield f"{written.where}: lets nobody in; write keys: store, or jwt:, or auth: none"
    if (jwt := config.auth.jwt) is not None and not root.at("auth.jwt.jwks"):
        try:
            parse_jwks(jwt.issuer)
        except ValueError:
            issuer = next(iter(root.each("auth.jwt.issuer")), written)
            yield f"{issuer.where}: {quote(jwt.issuer)} is no URL to ask for its keys; write jwks: too"
    if root.at("auth.keys") and not root.at("auth.pepper"):
        yield (
            f"{written.where}: pepper is missing; write pepper: {{env: MAITRED_AUTH_PEPPER}}, and keep in it "
            "what `openssl rand -hex 32` prints"
        )


def _missing_secrets(root: Raw, config: Config, environ: Mapping[str, str]) -> Iterator[str]:
    """Secrets that cannot be had: better known at the start than at the first use."""
    pepper = config.auth.pepper if isinstance(config.auth, Auth) else None
    secrets: list[tuple[Raw | None, object]] = [
        (root.at("admin.token"), config.admin.token),
        (root.at("auth.pepper"), pepper),
        (root.at("store.url"), config.store.url),
    ]
    for model, read in zip(root.each("models"), config.models, strict=False):
        secrets.append((model.at("cache.secret"), read.cache.secret))
    servers = root.at("mcp.servers")
    for label, server in config.mcp.servers.items():
        written = servers.value[label] if servers and isinstance(servers.value, dict) else None
        secrets += [(written, secret) for secret in server.secrets]
    others = [
        config.store.url,
        *(secret for server in config.mcp.servers.values() for secret in server.secrets),
    ]
    for written, secret in secrets:
        if written is not None and isinstance(secret, EnvSecret | FileSecret):
            try:
                secret.reveal(environ, 1 if secret in others else LENGTH_MIN)
            except ValueError as error:
                yield f"{written.where}: {error}"
