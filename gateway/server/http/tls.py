"""Load the certificate of the gateway, with its key, and renew it."""

import logging
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509 import Certificate, load_pem_x509_certificates

from gateway.config import TlsSettings

_log = logging.getLogger("gateway")
_SOON = timedelta(days=14)
CertificateFault = tuple[tuple[str, ...], str]


class Certificates:
    """The current certificate.  context: for a server; each connection begins with the newest certificate.

    The constructor and `renew` raise OSError for files that cannot be used; `renew` keeps the old ones then.
    """

    def __init__(self, tls: TlsSettings) -> None:
        self.renew(tls)
        self.context = self._newest
        self.context.sni_callback = self._choose  # also called if the client names no server

    def renew(self, tls: TlsSettings) -> None:
        """Use new files from the next connection on."""
        self._newest = _context(tls)
        validity = certificate_validity(tls)
        if validity.warns:
            _log.warning("server.tls.certificate: %s", validity.text)

    def _choose(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = self._newest


class CertificateValidity(NamedTuple):
    """The dates of a certificate in words.  valid: today; warns: it is not, or not for long."""

    valid: bool
    warns: bool
    text: str


def certificate_validity(tls: TlsSettings) -> CertificateValidity:
    """Return the validity of the certificate today."""
    leaf, now = _leaf(tls), datetime.now(UTC)
    begin, end = leaf.not_valid_before_utc, leaf.not_valid_after_utc
    valid, ends_soon = begin <= now <= end, now <= end < now + _SOON
    text = f"{tls.certificate} is {'' if valid else 'not '}valid: from {begin:%Y-%m-%d} to {end:%Y-%m-%d}"
    return CertificateValidity(valid, ends_soon or not valid, f"{text}; renew it soon" if ends_soon else text)


def certificate_errors(tls: TlsSettings) -> list[CertificateFault]:
    """Return the errors of the files, each with its key of the section."""
    found: list[CertificateFault] = []
    halves: list[object] = []
    for half in _certified, _private:
        try:
            halves.append(half(tls))
        except _CertificateError as wrong:
            found.append(wrong.fault)
    if found:
        return found
    if halves[0] != halves[1]:
        return [(("key",), f"{tls.key} does not match the first certificate in {tls.certificate}")]
    try:
        _context(tls)
    except OSError as error:
        return [(("certificate",), f"{tls.certificate} cannot be used: {error.strerror}")]
    return []


class _CertificateError(OSError):
    def __init__(self, key: str, text: str) -> None:
        super().__init__(text)
        self.fault: CertificateFault = ((key,), text)


def _leaf(tls: TlsSettings) -> Certificate:
    """Return the certificate of the gateway itself; the others are its chain."""
    try:
        leaf = load_pem_x509_certificates(_read(tls.certificate, "certificate"))[0]
        leaf.public_key()
    except (ValueError, UnsupportedAlgorithm):
        raise _CertificateError("certificate", f"{tls.certificate} contains no PEM certificate") from None
    return leaf


def _certified(tls: TlsSettings) -> object:
    """Return the public key in the certificate."""
    return _leaf(tls).public_key()


def _private(tls: TlsSettings) -> object:
    """Return the public key of the private key."""
    pem = _read(tls.key, "key")
    try:
        return load_pem_private_key(pem, None).public_key()
    except (ValueError, UnsupportedAlgorithm):
        raise _CertificateError("key", f"{tls.key} contains no PEM private key") from None
    except TypeError:
        if not tls.password:
            raise _CertificateError("key", f"{tls.key} is encrypted; set server.tls.password") from None
    try:
        return load_pem_private_key(pem, tls.password.get_secret_value().encode()).public_key()
    except (ValueError, TypeError):
        raise _CertificateError("password", f"does not decrypt {tls.key}") from None


def _read(file: str, key: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise _CertificateError(key, f"{file} cannot be read: {error.strerror}") from None


def _context(tls: TlsSettings) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    password = tls.password.get_secret_value() if tls.password else ""  # None would ask for it on the terminal
    context.load_cert_chain(tls.certificate, tls.key, password)
    return context
