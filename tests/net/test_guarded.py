"""Only public addresses are reached, and only those that were looked at."""

from __future__ import annotations

import asyncio
import errno
import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from maitred.net.guarded import Guarded, NotPublic, addresses, is_public
from maitred.net.memory import MemoryNetwork
from maitred.net.seams import Sockets
from tests.net.http import turns
from tests.proxy.place import in_virtual_time

PUBLIC, OTHER = "93.184.216.34", "93.184.216.35"


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.0.1", "100.64.0.1", "169.254.169.254", "0.0.0.0"),
        *("224.0.0.1", "255.255.255.255", "192.0.0.1", "198.18.0.1", "240.0.0.1", "203.0.113.1"),
        *("::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "ff02::1", "fec0::1"),
        *(
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::1",
            "2001:0:1::1",
            "::7f00:1",
        ),
        *("2001:db8::1", "example.com", "", "127.1"),
    ],
)
def test_what_is_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", [PUBLIC, "8.8.8.8", "::ffff:8.8.8.8", "2606:4700::1111"])
def test_what_is_public(address: str) -> None:
    assert is_public(address)


class Names:
    """Resolves to one list after the other; the last one stays."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.asked = 0

    async def __call__(self, _host: str, _port: int) -> list[str]:
        self.asked += 1
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


class Noted(MemoryNetwork):
    """Notes where connections go, and whom certificates must name."""

    def __init__(self) -> None:
        super().__init__()
        self.went: list[tuple[str, str | None]] = []

    async def connect(
        self,
        factory: Callable[[], Any],
        host: str,
        port: int,
        tls: ssl.SSLContext | None = None,
        server_name: str | None = None,
    ) -> Any:
        self.went.append((host, server_name))
        return await super().connect(factory, host, port, tls, server_name)


@in_virtual_time()
async def test_a_connection_goes_to_the_address_that_was_looked_at() -> None:
    """A name that would say something else the next time is not asked again."""
    network, names = Noted(), Names([PUBLIC], ["127.0.0.1"])
    listener = await network.listen(asyncio.Protocol, PUBLIC, 443)
    guarded = Guarded(network, names)
    protocol = await guarded.connect(asyncio.Protocol, "tools.example.com", 443)
    assert isinstance(protocol, asyncio.Protocol)
    assert (network.went, names.asked) == ([(PUBLIC, "tools.example.com")], 1)
    with pytest.raises(NotPublic):
        await guarded.connect(asyncio.Protocol, "tools.example.com", 443)
    assert len(network.went) == 1
    listener.close()


@pytest.mark.parametrize("found", [["127.0.0.1"], [PUBLIC, "10.0.0.1"], ["::1", PUBLIC], []])
@in_virtual_time()
async def test_one_address_that_is_not_public_is_one_too_many(found: list[str]) -> None:
    network = Noted()
    with pytest.raises(NotPublic) as refused:
        await Guarded(network, Names(found)).connect(asyncio.Protocol, "a.example.com", 443)
    assert network.went == []
    assert "10.0" not in str(refused.value)


class Broken(Noted):
    """A way that fails so, to all but one address."""

    def __init__(self, error: OSError) -> None:
        super().__init__()
        self.error = error

    async def connect(self, factory: Callable[[], Any], host: str, *how: Any) -> Any:
        connected = await super().connect(factory, host, *how) if host == OTHER else None
        if connected is None:
            self.went.append((host, None))
            raise self.error
        return connected


@pytest.mark.parametrize("error", [ConnectionRefusedError(), OSError(errno.ENETUNREACH, "no way")])
@in_virtual_time()
async def test_the_next_address_is_tried_where_there_is_no_way_to_one(error: OSError) -> None:
    network = Broken(error)
    listener = await network.listen(asyncio.Protocol, OTHER, 443)
    await Guarded(network, Names([PUBLIC, OTHER])).connect(asyncio.Protocol, "a.example.com", 443)
    assert [host for host, _ in network.went] == [PUBLIC, OTHER]
    with pytest.raises(type(error)):
        await Guarded(network, Names([PUBLIC])).connect(asyncio.Protocol, "a.example.com", 443)
    listener.close()


@in_virtual_time()
async def test_who_cannot_be_trusted_is_not_looked_for_elsewhere() -> None:
    network = Broken(ssl.SSLCertVerificationError())
    with pytest.raises(ssl.SSLError):
        await Guarded(network, Names([PUBLIC, OTHER])).connect(asyncio.Protocol, "a.example.com", 443)
    assert [host for host, _ in network.went] == [PUBLIC]


def test_the_system_resolves_all_forms_of_an_address() -> None:
    assert asyncio.run(addresses("127.1", 443)) == ["127.0.0.1"]
    assert "127.0.0.1" in asyncio.run(addresses("localhost", 443))


NAME = "tools.example.com"


def certificate(folder: Path, name: str) -> tuple[ssl.SSLContext, Path]:
    """What a server of this name needs, and what its clients go by."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = folder / "tls.pem"
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    file.write_bytes(private + made.public_bytes(Encoding.PEM))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(file)
    return context, file


@pytest.mark.parametrize(("host", "fits"), [(NAME, True), ("other.example.com", False)])
def test_the_certificate_must_be_the_names_whatever_the_address(
    tmp_path: Path, host: str, fits: bool
) -> None:
    served, file = certificate(tmp_path, NAME)
    trusted = ssl.create_default_context(cafile=str(file))

    async def main() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0, ssl=served)
        port = server.sockets[0].getsockname()[1]
        guarded = Guarded(Sockets(), Names(["127.0.0.1"]), lambda _address: True)
        if fits:
            protocol = await guarded.connect(Kept, host, port, trusted)
            protocol.transport.abort()
        else:
            with pytest.raises(ssl.SSLCertVerificationError):
                await guarded.connect(Kept, host, port, trusted)
        server.close()
        await server.wait_closed()
        await turns()

    asyncio.run(main())


class Kept(asyncio.Protocol):
    """Keeps its transport."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
