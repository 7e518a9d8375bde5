"""Tokens: which count, and what happens while the issuer's keys are old, wrong or not there."""

from __future__ import annotations

import asyncio
import base64
import json
from functools import cache
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from maitred.config.auth import JwksFile, Jwt
from maitred.control import jwt as verifying
from maitred.control.jwt import ASK_AGAIN_S, RENEW_S, TokenVerifier, read_keys
from maitred.control.known import Known
from maitred.core.outcome import FailureKind, Outcome, Refusal
from maitred.core.words import Identity
from maitred.net.pool import ConnectFailed
from maitred.net.virtual import run
from maitred.observe.findings import Findings
from tests.net.engine import line
from tests.net.http import turns

ISSUER, AUDIENCE = "https://sso.example.com", "maitred"
FAR = 4_000_000_000
CLAIMS = {"iss": ISSUER, "aud": AUDIENCE, "exp": FAR, "sub": "ann", "team": "support"}
URL = "http://127.0.0.1:1/keys?of=all"


@cache
def private(kind: str) -> Any:
    """A key pair, made once."""
    if kind.startswith("RSA"):
        return rsa.generate_private_key(65537, 2048)
    return ec.generate_private_key(ec.SECP256R1()) if kind == "EC" else ed25519.Ed25519PrivateKey.generate()


def public(kind: str, **more: Any) -> dict[str, Any]:
    """The entry of a key set for one of them."""
    form = {"R": RSAAlgorithm, "E": ECAlgorithm, "O": OKPAlgorithm}[kind[0]]
    entry = json.loads(form.to_jwk(private(kind).public_key()))  # type: ignore[attr-defined]
    return {**entry, "kid": kind, **more}


def key_set(*entries: dict[str, Any]) -> bytes:
    return json.dumps({"keys": entries or [public("RSA"), public("EC"), public("OKP")]}).encode()


def token(kind: str = "RSA", alg: str = "RS256", kid: str | None = "", **claims: Any) -> bytes:
    """A signed token; a claim that is None is left out."""
    said = {name: value for name, value in {**CLAIMS, **claims}.items() if value is not None}
    headers = {} if kid is None else {"kid": kid or kind}
    return jwt.encode(said, private(kind), alg, headers).encode()


class Issuer:
    """An issuer that answers with its key set, or not; and a clock that the test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
        self.answer: bytes | Exception = key_set()
        self.status = 200
        self.discovered = json.dumps({"jwks_uri": f"{ISSUER}/keys"}).encode()
        self.asked: list[str] = []
        self.now = 1000.0
        self.changes = 0
        self.findings = Findings()
        monkeypatch.setattr(verifying, "fetch", self._fetch)
        made = Jwt(**{"issuer": ISSUER, "audience": AUDIENCE, "jwks": URL, **settings})
        self.verifier = TokenVerifier(made, None, self.findings, lambda: self.now, self._changed)  # type: ignore[arg-type]

    async def _fetch(self, _pool: object, url: str, path: str, _timeout_s: float) -> tuple[int, bytes]:
        self.asked.append(url + path)
        if path.endswith("configuration"):
            return self.status, self.discovered
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.status, self.answer

    def _changed(self) -> None:
        self.changes += 1

    def read(self) -> None:
        """Have the key set read."""
        asyncio.run(self.verifier.refresh())

    def refused(self, raw: bytes) -> Refusal:
        with pytest.raises(Refusal) as caught:
            self.verifier.verify(raw)
        return caught.value

    @property
    def told(self) -> list[str]:
        return [str(finding) for finding in self.findings.current()]


@pytest.fixture
def issuer(monkeypatch: pytest.MonkeyPatch) -> Issuer:
    made = Issuer(monkeypatch)
    made.read()
    return made


@pytest.mark.parametrize(("kind", "alg"), [("RSA", "RS256"), ("EC", "ES256"), ("OKP", "EdDSA")])
def test_a_token_of_the_issuer_counts(issuer: Issuer, kind: str, alg: str) -> None:
    assert issuer.verifier.verify(token(kind, alg)) == Known(Identity("ann"), FAR + 30.0)
    assert issuer.asked == [URL]


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        ({"exp": 1000}, "has expired"),
        ({"nbf": FAR}, "not valid yet"),
        ({"aud": "another"}, "for somebody else"),
        ({"aud": ["another", "more"]}, "for somebody else"),
        ({"iss": "https://sso.example.org"}, "another issuer"),
        ({"iss": None}, "lacks one of"),
        ({"aud": None}, "lacks one of"),
        ({"exp": None}, "lacks one of"),
        ({"exp": "soon"}, "not good"),
        ({"exp": 10**400}, "not good"),
        ({"sub": None}, "claim sub names no tenant"),
        ({"sub": ""}, "claim sub names no tenant"),
        ({"sub": "x" * 300}, "claim sub names no tenant"),
        ({"sub": "a\nb"}, "claim sub names no tenant"),
    ],
)
def test_what_a_token_must_say(issuer: Issuer, claims: dict[str, Any], said: str) -> None:
    refusal = issuer.refused(token(**claims))
    assert refusal.outcome is Outcome.UNAUTHENTICATED
    assert said in refusal.message
    assert refusal.headers == (("www-authenticate", "Bearer"),)


def forged(header: dict[str, Any], signature: bytes = b"") -> bytes:
    parts = (json.dumps(header).encode(), json.dumps(CLAIMS).encode(), signature)
    return b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts)


def test_a_signature_that_anybody_can_make_is_none(issuer: Issuer) -> None:
    pem = private("RSA").public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    signer = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256)
    unsigned = forged({"alg": "HS256", "kid": "RSA"}).rstrip(b".")
    mac = base64.urlsafe_b64encode(signer.sign(unsigned, pem)).rstrip(b"=")
    whole = token()
    for bad in (
        forged({"alg": "none", "kid": "RSA"}),
        forged({"alg": "nOnE", "kid": "RSA"}),
        forged({"kid": "RSA"}),
        unsigned + b"." + mac,
        whole[:-4] + b"AAAA",
        token("EC", "ES256", kid="RSA"),
        token("RSA", "PS256"),  # right, but not of auth.jwt.algorithms
        b"eyJ..",
        b"eyJh.eyJp.c2ln",
        forged({"alg": "RS256", "kid": ["RSA"]}),
        base64.urlsafe_b64encode(b'{"a":' * 4000) + b".eyJp.c2ln",
        base64.urlsafe_b64encode(b"[" * 9000) + b".eyJp.c2ln",
    ):
        refusal = issuer.refused(bad)
        assert refusal.outcome is Outcome.UNAUTHENTICATED, bad
    issuer.verifier.verify(whole)


def test_what_the_issuer_says_of_a_key_counts() -> None:
    algorithms = ("RS256", "RS512", "PS256", "ES256")
    other = {"kty": "oct", "k": "c2VjcmV0", "kid": "shared", "alg": "HS256"}
    broken = {"kty": "RSA", "kid": "broken", "n": "!", "e": "!"}
    entries = [
        public("RSA"),
        public("RSA2", alg="PS256"),
        public("EC", use="enc"),
        public("OKP"),
        other,
        broken,
    ]
    keys = read_keys(key_set(*entries, 5), algorithms)  # type: ignore[arg-type]
    assert {kid: key.algorithms for kid, key in keys.items()} == {
        "RSA": ("RS256", "RS512", "PS256"),
        "RSA2": ("PS256",),
    }


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b"{}", b'{"keys":5}', b'{"keys":[]}', b"<html>", key_set({"kty": "oct", "k": "YQ"})]
)
def test_what_is_no_key_set_leaves_the_last_one(issuer: Issuer, raw: bytes) -> None:
    issuer.answer = raw
    issuer.read()
    assert issuer.told[0].startswith(f"{URL}: its keys cannot be read (it ")
    issuer.verifier.verify(token())
    issuer.answer = key_set()
    issuer.read()
    assert (issuer.told, issuer.changes) == ([], 1)


@pytest.mark.parametrize(
    ("claims", "may_set"),
    [
        ({"rights": "receipt slo"}, ("receipt", "slo")),
        ({"rights": ["band"]}, ("band",)),
        ({"rights": []}, ()),
        ({}, ()),
    ],
)
def test_a_claim_says_what_requests_may_say_of_themselves(
    monkeypatch: pytest.MonkeyPatch, claims: dict[str, Any], may_set: tuple[str, ...]
) -> None:
    issuer = Issuer(monkeypatch, may_set="rights")
    issuer.read()
    assert issuer.verifier.verify(token(**claims)).identity.may_set == may_set
    assert issuer.refused(token(rights=5)).outcome is Outcome.UNAUTHENTICATED
    unasked = Issuer(monkeypatch)
    unasked.read()
    assert unasked.verifier.verify(token(rights="receipt")).identity.may_set == ()


def test_claims_give_tenant_models_and_bands(monkeypatch: pytest.MonkeyPatch) -> None:
    issuer = Issuer(monkeypatch, tenant="team", models="models", bands="scope")
    issuer.read()
    identity = issuer.verifier.verify(token(models=["m", "n"], scope="chat batch")).identity
    assert identity == Identity("support", models=("m", "n"), bands=("chat", "batch"))
    for bad in ({"scope": "chat"}, {"models": [], "scope": "chat"}, {"models": [1], "scope": "chat"}):
        assert "claim models lists nothing" in issuer.refused(token(**bad)).message
    assert "claim scope lists nothing" in issuer.refused(token(models=["m"], scope=" ")).message


def test_a_token_without_the_name_of_its_key_needs_a_single_one(issuer: Issuer) -> None:
    assert "does not list" in issuer.refused(token(kid=None)).message
    issuer.answer = key_set(public("RSA"))
    issuer.read()
    issuer.verifier.verify(token(kid=None))


def test_a_key_that_is_not_known_is_asked_for_and_not_too_often(monkeypatch: pytest.MonkeyPatch) -> None:
    issuer = Issuer(monkeypatch)
    issuer.answer = key_set(public("RSA"))

    async def main() -> None:
        reading = asyncio.create_task(issuer.verifier.run())
        await turns()
        issuer.answer = key_set(public("RSA"), public("RSA2"))
        new = token("RSA2")
        issuer.now += 1
        for _ in range(3):
            refusal = issuer.refused(new)  # it may be newer than what was read just now
            assert (refusal.outcome, refusal.wait_s) == (Outcome.AUTH_UNAVAILABLE, ASK_AGAIN_S - 1)
        await turns()
        assert len(issuer.asked) == 1
        issuer.now += ASK_AGAIN_S - 1
        assert issuer.refused(token(kid="made up")).outcome is Outcome.AUTH_UNAVAILABLE
        for _ in range(3):
            refusal = issuer.refused(new)
            assert (refusal.outcome, refusal.wait_s) == (Outcome.AUTH_UNAVAILABLE, 1.0)
        await turns()
        assert len(issuer.asked) == 2
        issuer.verifier.verify(new)
        issuer.now += 1
        assert issuer.refused(token(kid="made up")).outcome is Outcome.UNAUTHENTICATED
        await turns()
        assert len(issuer.asked) == 2
        await asyncio.sleep(RENEW_S + 1)
        assert len(issuer.asked) == 3
        reading.cancel()

    run(main(), RENEW_S * 2)


def test_made_up_names_of_keys_take_no_memory(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifying, "STRANGERS_MAX", 3)
    for number in range(10):
        issuer.refused(token(kid=f"made up {number}"))
    assert len(issuer.verifier._strangers) <= 3


def test_b84_while_the_issuer_is_away_its_known_keys_count(issuer: Issuer) -> None:
    issuer.answer = ConnectFailed(FailureKind.CONNECT, "refused")
    issuer.read()
    issuer.verifier.verify(token())
    assert issuer.refused(token(kid="new")).outcome is Outcome.AUTH_UNAVAILABLE
    (told,) = issuer.told
    assert told.startswith(f"{URL}: its keys cannot be read (refused); see why the issuer does not answer")


def test_b84_before_the_first_key_set_no_token_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    issuer = Issuer(monkeypatch)
    issuer.status = 503
    issuer.read()
    assert issuer.refused(token()).outcome is Outcome.AUTH_UNAVAILABLE
    assert "GET /keys?of=all is answered with 503" in issuer.told[0]


def test_an_issuer_may_say_where_its_keys_are(monkeypatch: pytest.MonkeyPatch) -> None:
    issuer = Issuer(monkeypatch, jwks=None)
    issuer.read()
    issuer.verifier.verify(token())
    assert issuer.asked == [f"{ISSUER}/.well-known/openid-configuration", f"{ISSUER}/keys"]
    for bad in (b"<html>", b"{}", b'{"jwks_uri": 5}', b'{"jwks_uri": "http://sso.example.com/keys"}'):
        issuer.discovered = bad
        issuer.read()
        assert issuer.told[0].startswith(f"{ISSUER}: its keys cannot be read (")
        assert len(issuer.asked) == 3
        issuer.asked.pop()
        issuer.verifier.verify(token())


def test_keys_may_be_in_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    issuer = Issuer(monkeypatch, jwks=JwksFile(path))
    issuer.read()
    assert f"{path}: its keys cannot be read" in issuer.told[0]
    path.write_bytes(key_set())
    issuer.read()
    issuer.verifier.verify(token())
    assert (issuer.told, issuer.asked) == ([], [])


def test_the_key_set_comes_over_our_own_client() -> None:
    async def main() -> None:
        async with line() as at:
            made = Jwt(ISSUER, AUDIENCE, at.url + "/keys?of=all")
            verifier = TokenVerifier(made, at.pool, Findings(), lambda: 0.0)
            reading = asyncio.create_task(verifier.refresh())
            await turns()
            raw = key_set()
            (server,) = at.engines
            assert server.received.startswith(b"GET /keys?of=all HTTP/1.1\r\n")
            server.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(raw), raw))
            await reading
            assert verifier.verify(token()).identity == Identity("ann")

    run(main())
