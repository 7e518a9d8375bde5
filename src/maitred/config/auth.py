"""Who may ask: the settings of keys and tokens, and of the database that keeps what must survive."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from msgspec import Struct, structs

from maitred.config.kinds import FILE, GRACE, NUMBER, PORTS, TEXT, TIMEOUT, Kind, choice
from maitred.config.secret import SECRET, EnvSecret, FileSecret, Secret
from maitred.config.setting import Forms, Listed, Setting
from maitred.config.units import quote

STORE_DEFAULT = "sqlite:///maitred.db"
DISCOVERY = "/.well-known/openid-configuration"
JWKS_EXAMPLE = "https://sso.example.com/.well-known/jwks.json"
ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)
"""How tokens may be signed: by a private key only, so that whoever can check one cannot make one."""

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_sqlite = re.compile(r"sqlite:///[^?#\s]+").fullmatch


def parse_database(text: str) -> str:
    """The URL of a SQLite file. Other databases' hold passwords, so they are kept as secrets."""
    if not _sqlite(text):
        raise ValueError(
            f"must be {STORE_DEFAULT} or another SQLite file, or {{env: NAME}} or {{file: PATH}} where the "
            "URL of a PostgreSQL is kept; what is written is not repeated in case it holds a password"
        )
    return text


def parse_jwks(text: str) -> str:
    """The URL of a key set: https, because who can change the answer can make tokens."""
    try:
        url = urlsplit(text)
        host, port = url.hostname, url.port
    except ValueError as error:
        raise ValueError(f"{quote(text)} is no URL; write such as {JWKS_EXAMPLE}") from error
    if url.scheme not in PORTS or not host or url.username or url.fragment or port == 0 or not text.isascii():
        raise ValueError(f"{quote(text)} is no URL of a key set; write such as {JWKS_EXAMPLE}")
    if url.scheme == "http" and host not in _LOOPBACK:
        raise ValueError(f"{quote(text)}: scheme must be https beyond this machine")
    return text


ISSUER = structs.replace(TEXT, example="https://sso.example.com")
AUDIENCE = structs.replace(TEXT, example="maitred")
DATABASE = Kind(parse_database, str, {"type": "string", "pattern": "^sqlite:///"}, STORE_DEFAULT)
JWKS = Kind(parse_jwks, str, {"type": "string", "format": "uri", "pattern": "^https?://"}, JWKS_EXAMPLE)


class Store(Struct, frozen=True):
    """The database of keys, accounts, and what is remembered of conversations."""

    url: Annotated[
        str | EnvSecret | FileSecret | None,
        Setting(
            "url",
            Forms((DATABASE, EnvSecret, FileSecret), f"{STORE_DEFAULT}, {{env: NAME}} or {{file: PATH}}"),
            "Where it is: a SQLite file as `sqlite:///PATH`; or `{env: NAME}` or `{file: PATH}`, where the "
            "URL of a PostgreSQL is kept.",
            f"`{STORE_DEFAULT}` in the working directory, if keys are kept there",
        ),
    ] = None
    pool: Annotated[
        int,
        Setting(
            "pool",
            NUMBER,
            "Connections to a PostgreSQL that a gateway keeps for conversations, three at least; keys and "
            "accounts take two more.",
        ),
    ] = 6
    statement_s: Annotated[
        float,
        Setting("statement_timeout", TIMEOUT, "Longest time for one statement, and to wait for a busy file."),
    ] = 5.0
    synchronous: Annotated[
        str,
        Setting(
            "synchronous",
            choice("full", "normal"),
            "Of a SQLite file: `full` brings each turn to the disk before it is said to be complete; "
            "`normal` may forget the last ones when the machine loses power, never when the gateway dies.",
        ),
    ] = "full"
    sweep_s: Annotated[
        float,
        Setting(
            "sweep",
            TIMEOUT,
            "How often a gateway looks for what is to be deleted, and for turns of gateways that died.",
        ),
    ] = 10.0


class JwksFile(Struct, frozen=True):
    """A key set in a file."""

    file: Annotated[Path, Setting("file", FILE, "A key set as JSON.")]


class Jwt(Struct, frozen=True):
    """Tokens of an identity provider (OIDC)."""

    issuer: Annotated[str, Setting("issuer", ISSUER, "What `iss` of a token must be.")]
    audience: Annotated[str, Setting("audience", AUDIENCE, "What `aud` of a token must be or hold.")]
    jwks: Annotated[
        str | JwksFile | None,
        Setting(
            "jwks",
            Forms((JWKS, JwksFile), f"a URL such as {JWKS_EXAMPLE}, or {{file: PATH}}"),
            "The issuer's public keys: the URL of its key set (`jwks_uri`), or `{file: PATH}`.",
            f"what the issuer says at `{DISCOVERY}`",
        ),
    ] = None
    algorithms: Annotated[
        tuple[str, ...],
        Setting("algorithms", Listed(choice(*ALGORITHMS), length_min=1), "Signatures that count."),
    ] = ("RS256", "ES256", "EdDSA")
    tenant: Annotated[str, Setting("tenant", TEXT, "The claim that names the tenant.")] = "sub"
    models: Annotated[
        str | None,
        Setting("models", TEXT, "The claim that lists the models one may use.", "all models"),
    ] = None
    bands: Annotated[
        str | None,
        Setting("bands", TEXT, "The claim that lists the bands one may use.", "all bands"),
    ] = None
    may_set: Annotated[
        str | None,
        Setting(
            "may_set",
            TEXT,
            "The claim that lists what requests may say of themselves in headers, as `maitred keys add "
            "--may-set` does; a token without it may say nothing.",
            "nothing",
        ),
    ] = None
    leeway_s: Annotated[
        float, Setting("leeway", GRACE, "How far the issuer's clock may be off from this machine's.")
    ] = 30.0


class Auth(Struct, frozen=True):
    """Who is let in: keys, tokens, or both."""

    keys: Annotated[
        str | None,
        Setting("keys", choice("store"), "`store`: whoever has a key that `maitred keys` added.", "no keys"),
    ] = None
    pepper: Annotated[
        Secret | None,
        Setting(
            "pepper",
            SECRET,
            "What keys are hashed with, as `{env: NAME}` or `{file: PATH}`; needed with `keys`. Whoever "
            "loses it must make all keys anew.",
            "not set",
        ),
    ] = None
    refresh_s: Annotated[
        float,
        Setting("refresh", TIMEOUT, "How often the keys are read again; so long a revoked one may work."),
    ] = 5.0
    jwt: Annotated[Jwt | None, Setting("jwt", Jwt, derived="no tokens")] = None
