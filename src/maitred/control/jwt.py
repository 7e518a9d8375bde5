"""Tokens of an identity provider: its public keys, read beside the requests, and what a token says by them.

Only signatures by a private key count, and only those the configuration lists; issuer, audience and an end
must be there. While the issuer is away the keys last read go on counting. A token of a key that is not known
makes them be read again, at most every ASK_AGAIN_S, and is answered with 503 until that is done: its issuer
may have a new key since.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jwt
from msgspec import DecodeError, Struct, json

from maitred.config.auth import DISCOVERY, JwksFile, Jwt, parse_jwks
from maitred.control.known import Known, unauthenticated, unavailable
from maitred.core.words import Identity
from maitred.net.fetch import fetch
from maitred.net.pool import ConnectFailed, Pool
from maitred.observe.findings import Findings

FETCH_S = 5.0
RENEW_S = 300.0
"""How often the key set is read when nobody asks for it."""
ASK_AGAIN_S = 30.0
KEYS_MAX = 100
STRANGERS_MAX = 1000
FILE_BYTES_MAX = 1024 * 1024
TENANT_CHARS_MAX = 256
NAMES_MAX = 256

FAMILIES = {"RSA": ("RS", "PS"), "EC": ("ES",), "OKP": ("Ed",)}
"""What keys of each type sign, by the beginnings of the algorithms' names. None is a shared secret."""
WORDS: dict[type[jwt.PyJWTError], str] = {
    jwt.ExpiredSignatureError: "the token has expired; get a new one",
    jwt.ImmatureSignatureError: "the token is not valid yet",
    jwt.InvalidAudienceError: "the token is for somebody else: its aud is not this gateway's",
    jwt.InvalidIssuerError: "the token is of another issuer",
    jwt.MissingRequiredClaimError: "the token lacks one of iss, aud and exp",
}


class VerifyingKey(Struct, frozen=True):
    """One public key, and the algorithms it may be used with."""

    key: Any
    algorithms: tuple[str, ...]


class _Discovered(Struct):
    jwks_uri: str


class TokenVerifier:
    """Tells whose token it is. `run` reads the keys until cancelled; `changed` is called when they differ."""

    def __init__(
        self,
        settings: Jwt,
        pool: Pool,
        findings: Findings,
        clock: Callable[[], float],
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.settings = settings
        self._pool = pool
        self._findings = findings
        self._clock = clock
        self._changed = changed
        self._keys: dict[str, VerifyingKey] | None = None
        self._strangers: dict[str | None, float] = {}  # ids of keys that are not listed, and since when
        self._raw = b""
        self._read_at = -ASK_AGAIN_S
        self._failed = False
        self._wanted = asyncio.Event()

    def verify(self, token: bytes) -> Known:
        """Whose token this is, and until when. Raises Refusal."""
        settings = self.settings
        try:
            key = self._key(jwt.get_unverified_header(token))
            claims = jwt.decode(
                token,
                key.key,
                algorithms=key.algorithms,
                audience=settings.audience,
                issuer=settings.issuer,
                leeway=settings.leeway_s,
                options={"require": ["exp", "iss", "aud"], "enforce_minimum_key_length": True},
            )
            until = float(int(claims["exp"])) + settings.leeway_s
        except (jwt.PyJWTError, ValueError, OverflowError, RecursionError) as error:
            words = next((WORDS[kind] for kind in WORDS if isinstance(error, kind)), "the token is not good")
            raise unauthenticated(words) from None
        return Known(_identity(settings, claims), until)

    async def run(self) -> None:
        """Read the key set now and then, and when a token asks for it."""
        while True:
            await self.refresh()
            self._wanted.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(RENEW_S):
                    await self._wanted.wait()

    async def refresh(self) -> None:
        """Read the key set once."""
        where, began = _place(self.settings), self._clock()
        try:
            raw = await self._fetch()
            if raw != self._raw:
                self._keys, self._raw = read_keys(raw, self.settings.algorithms), raw
                self._changed()
        except (ConnectFailed, OSError, ValueError) as error:
            self._failed = True
            do = "see why the issuer does not answer; tokens of the keys that are known go on working"
            self._findings.tell("jwks_unreachable", where, f"its keys cannot be read ({error})", do)
        else:
            self._failed = False
            self._findings.settle("jwks_unreachable", where)
        self._read_at = began

    def _key(self, header: dict[str, Any]) -> VerifyingKey:
        if header.get("alg") not in self.settings.algorithms:
            raise unauthenticated("the token is not signed by any of auth.jwt.algorithms")
        keys, kid = self._keys, header.get("kid")
        if keys is not None:
            if kid in keys:
                return keys[kid]
            if kid is None and len(keys) == 1:
                return next(iter(keys.values()))
        now = self._clock()
        if len(self._strangers) >= STRANGERS_MAX:
            self._strangers.clear()
        since = self._strangers.setdefault(kid, now)
        again_s = self._read_at + ASK_AGAIN_S - now
        if again_s <= 0:
            self._wanted.set()
        if keys is None or self._failed or self._wanted.is_set():
            raise unavailable("the issuer's keys are not known for the moment", 1.0)
        if since > self._read_at:
            raise unavailable("the token's key is not known yet; the issuer is asked again soon", again_s)
        raise unauthenticated("the token is signed by a key that its issuer does not list")

    async def _fetch(self) -> bytes:
        jwks = self.settings.jwks
        if isinstance(jwks, JwksFile):
            return await asyncio.to_thread(_read_file, jwks.file)
        if jwks is None:
            jwks = _jwks_of(await self._get(self.settings.issuer.rstrip("/") + DISCOVERY))
        return await self._get(jwks)

    async def _get(self, address: str) -> bytes:
        url = urlsplit(address)
        path = (url.path or "/") + (f"?{url.query}" if url.query else "")
        status, body = await fetch(self._pool, f"{url.scheme}://{url.netloc}", path, FETCH_S)
        if status != 200:
            raise ValueError(f"GET {path} is answered with {status}")
        return body


def _jwks_of(discovered: bytes) -> str:
    """Where an issuer says that its keys are. Raises ValueError."""
    try:
        return parse_jwks(json.decode(discovered, type=_Discovered).jwks_uri)
    except DecodeError as error:
        raise ValueError(f"{DISCOVERY} holds no jwks_uri") from error


def read_keys(raw: bytes, algorithms: tuple[str, ...]) -> dict[str, VerifyingKey]:
    """The keys of a JWK set that verify one of these, by their ids. Raises ValueError where there is none."""
    try:
        listed = json.decode(raw, type=dict[str, Any]).get("keys")
    except DecodeError:
        listed = None
    if not isinstance(listed, list) or len(listed) > KEYS_MAX:
        raise ValueError(f"it is no key set of at most {KEYS_MAX} keys")
    found: dict[str, VerifyingKey] = {}
    for entry in listed:
        if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
            continue
        families = FAMILIES.get(str(entry.get("kty")), ())
        said = entry.get("alg")
        usable = tuple(name for name in algorithms if name.startswith(families) and said in (None, name))
        if not usable:
            continue
        try:
            found[str(entry.get("kid", ""))] = VerifyingKey(jwt.PyJWK(entry, usable[0]).key, usable)
        except jwt.PyJWTError:
            continue  # of a curve or a form that nobody here knows
    if not found:
        raise ValueError("it holds no key for any of auth.jwt.algorithms")
    return found


def _identity(settings: Jwt, claims: dict[str, Any]) -> Identity:
    tenant = claims.get(settings.tenant)
    if not isinstance(tenant, str) or not tenant.isprintable() or not 0 < len(tenant) <= TENANT_CHARS_MAX:
        raise unauthenticated(f"the token's claim {settings.tenant} names no tenant")
    models, bands = _names(claims, settings.models), _names(claims, settings.bands)
    may_set = _names(claims, settings.may_set) if claims.get(settings.may_set or "") else ()
    return Identity(tenant, models=models, bands=bands, may_set=may_set)


def _names(claims: dict[str, Any], claim: str | None) -> tuple[str, ...]:
    """What a claim lists. Nothing listed would mean all, so it must list something."""
    if claim is None:
        return ()
    said = claims.get(claim)
    names = said.split() if isinstance(said, str) else said
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise unauthenticated(f"the token's claim {claim} lists nothing that may be used")
    return tuple(names[:NAMES_MAX])


def _read_file(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(FILE_BYTES_MAX)


def _place(settings: Jwt) -> str:
    return (
        str(settings.jwks.file) if isinstance(settings.jwks, JwksFile) else settings.jwks or settings.issuer
    )
