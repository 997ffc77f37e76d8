"""Certificates, and gateways with TLS."""

import ssl
from contextlib import asynccontextmanager

import httpx
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from gateway.config import TlsSettings
from support.serve_process import config_of, living
from support.wait import DEADLINE

CA = trustme.CA()


def trusting():
    """Return a context that trusts the test's authority."""
    context = ssl.create_default_context()
    CA.configure_trust(context)
    return context


TRUSTING = trusting()


def issue(folder, *, password=None, **more):
    """Write a new certificate for this machine, with its key, and return the section with both."""
    made = CA.issue_cert("localhost", "127.0.0.1", **more)
    pem = made.private_key_pem.bytes()
    if password:
        locked = BestAvailableEncryption(password.encode())
        pem = load_pem_private_key(pem, None).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, locked)
    replace(folder / "key.pem", pem)
    replace(folder / "cert.pem", b"".join(one.bytes() for one in made.cert_chain_pems))
    return {"certificate": "cert.pem", "key": "key.pem", **({"password": password} if password else {})}


def replace(file, data):
    """Replace a file at once."""
    new = file.with_suffix(".new")
    new.write_bytes(data)
    new.replace(file)


def whole(folder, **more):
    """Return the section with absolute paths, as after reading."""
    return TlsSettings(certificate=f"{folder}/cert.pem", key=f"{folder}/key.pem", **more)


@asynccontextmanager
async def serving(folder, upstream, clean=True, **server):
    """Run a gateway process with TLS, and yield it with a client that trusts it."""
    configuration = config_of(upstream.url, folder, server={"tls": issue(folder), **server})
    async with living(folder, configuration) as one:
        url = f"https://localhost:{one.client.base_url.port}"
        async with httpx.AsyncClient(base_url=url, timeout=DEADLINE, verify=TRUSTING) as one.client:
            yield one
    assert not clean or "ERROR" not in one.output, one.output
