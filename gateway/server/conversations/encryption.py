"""Encrypt the reasoning that clients keep, so that no other party can read or replace it.

Encrypted reasoning is `gw1.` and the base64url of the key's id (8 bytes), a nonce (12) and the AES-GCM ciphertext of
the reasoning as JSON.  The version and the tenant are authenticated with it.
"""

import logging
import os
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING

from msgspec import DecodeError, json

from gateway.config.schema import StoreSettings
from gateway.request import StoredReasoning

if TYPE_CHECKING:  # 8 MB, which no process needs before its first encrypted reasoning
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_log = logging.getLogger("gateway")
_VERSION = "gw1."
_KEY, _ID, _NONCE = 32, 8, 12  # bytes
_MAX = 32 << 20  # characters; longer text is rejected
_SHORTEST = 32  # bytes of a key in a file; a shorter one was not written by the gateway
_FILE = Path("gateway.key")  # for a store without a file
_NOT_KEPT = (
    "the key that encrypts reasoning cannot be stored in %s (%s): only this process can decrypt what it encrypts; "
    "set store.sealing_keys, or allow the gateway to write that file"
)
_decode = json.Decoder(StoredReasoning).decode

KeysById = Mapping[bytes, "AESGCM"]  # the first one encrypts


class EncryptionKeys:
    """The keys of a store: `sealing_keys`, or a generated one that is kept beside the store."""

    def __init__(self, store: StoreSettings) -> None:
        self._store = store

    def sealer(self, tenant: str) -> "ReasoningEncryptor":
        """Return the encryptor of a tenant, the name of the client's key, "" without keys."""
        return ReasoningEncryptor(lambda: self._keys, tenant)

    @cached_property
    def _keys(self) -> KeysById:
        given = [key.get_secret_value().encode() for key in self._store.sealing_keys]
        return dict(map(_derived, given or [_kept(_file(self._store.url.get_secret_value()))]))


class ReasoningEncryptor:
    """Encrypt and decrypt the reasoning of one tenant.

    keys: returns the keys, called at each use, so they are loaded when first needed.
    """

    def __init__(self, keys: Callable[[], KeysById], tenant: str) -> None:
        self._keys = keys
        self._bound = f"{_VERSION}{tenant}".encode()

    def seal(self, thought: StoredReasoning) -> str:
        """Encrypt reasoning."""
        id, key = next(iter(self._keys().items()))
        nonce = secrets.token_bytes(_NONCE)
        return _wrapped(id + nonce + key.encrypt(nonce, json.encode(thought), self._bound))

    def open(self, sealed: str) -> StoredReasoning | None:
        """Decrypt reasoning; return None for any text that was not encrypted with these keys for this tenant."""
        raw = _unwrapped(sealed)
        id, nonce, ciphertext = raw[:_ID], raw[_ID : _ID + _NONCE], raw[_ID + _NONCE :]
        key = self._keys().get(id) if ciphertext else None
        if not key:
            return None
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415

        try:
            return _decode(key.decrypt(nonce, ciphertext, self._bound))
        except (InvalidTag, DecodeError):
            return None


def _wrapped(raw: bytes) -> str:
    return _VERSION + urlsafe_b64encode(raw).rstrip(b"=").decode()


def _unwrapped(sealed: str) -> bytes:
    """Return the decoded bytes; b"" for another form.  The encoding is canonical: the same bytes have one text only."""
    if len(sealed) > _MAX or not sealed.startswith(_VERSION):
        return b""
    try:
        raw = urlsafe_b64decode(f"{sealed[len(_VERSION) :]}==")
    except ValueError:
        return b""
    return raw if _wrapped(raw) == sealed else b""


def _derived(secret: bytes) -> "tuple[bytes, AESGCM]":
    """Return the id and the key derived from a secret of any length; the id reveals nothing about either."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415
    from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF  # noqa: PLC0415

    derived = HKDF(SHA256(), _KEY + _ID, salt=None, info=b"gateway sealed reasoning 1").derive(secret)
    return derived[_KEY:], AESGCM(derived[:_KEY])


def _file(url: str) -> Path:
    """Return the path of a store's key."""
    scheme, _, rest = url.partition(":///")
    database = rest.partition("?")[0]
    if not scheme.startswith("sqlite") or not database or database.startswith((":memory:", "file:")):
        return _FILE
    return Path(f"{database}.key")


def _kept(file: Path) -> bytes:
    """Return the secret in this file, which is created if missing; if that fails, one for this process only."""
    try:
        if not file.exists():
            _make(file)
        secret = file.read_bytes().strip()
        if len(secret) >= _SHORTEST:
            return secret
        problem = "it contains no key"
    except OSError as error:
        problem = error.strerror or str(error)
    _log.warning(_NOT_KEPT, file, problem)
    return secrets.token_bytes(_KEY)


def _make(file: Path) -> None:
    """Create the file in one step, and never replace one: processes that start at once all read the same secret."""
    with NamedTemporaryFile(dir=file.parent, prefix=file.name) as made:  # only its owner can read it
        made.write(f"{secrets.token_urlsafe(_KEY)}\n".encode())
        made.flush()
        os.fsync(made.fileno())
        with suppress(FileExistsError):
            os.link(made.name, file)
