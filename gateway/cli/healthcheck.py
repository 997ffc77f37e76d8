"""Check if a gateway is alive, for the health check of a container.  It runs often, so it imports next to nothing."""

import http.client
import ssl
from urllib.parse import urlsplit

HERE = ("http://127.0.0.1:8900", "https://127.0.0.1:8900")
_SECONDS = 2  # to connect, and for each read


def is_alive(url: str) -> bool:
    """Return True if /health of the gateway at this root URL returns 200.  Raises ValueError for an invalid URL.

    The certificate is not verified: the request has no secrets, and the certificate names the public host.
    """
    connection = _connection(url)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _connection(url: str) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    if not parts.hostname or parts.scheme not in ("http", "https"):
        raise ValueError(f"{url!r} is not the URL of a gateway, like http://127.0.0.1:8900")
    if parts.scheme == "http":
        return http.client.HTTPConnection(parts.hostname, parts.port, timeout=_SECONDS)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return http.client.HTTPSConnection(parts.hostname, parts.port, timeout=_SECONDS, context=context)
