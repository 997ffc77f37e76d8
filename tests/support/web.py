"""Web servers on this machine, with names and certificates of the test."""

import asyncio
import ssl
from contextlib import asynccontextmanager, suppress

import trustme

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
HERE = "127.0.0.1/32"


class Web:
    """A server with pages by path; `requests`: the requests so far; `connections`: how many are open."""

    def __init__(self, pages):
        self.pages = pages
        self.requests, self.arrived, self.connections = [], asyncio.Event(), 0

    async def welcome(self, reader, writer):
        """Serve one connection."""
        self.connections += 1
        # uvloop raises RuntimeError for a closed connection.
        with suppress(ConnectionError, RuntimeError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            path = head.split(" ")[1]
            fields = (line.split(": ", 1) for line in head.split("\r\n")[1:-2])
            self.requests.append((path, {name.lower(): value for name, value in fields}))
            self.arrived.set()
            page = self.pages[path]
            if isinstance(page, bytes):
                writer.write(page)
                await writer.drain()
            else:
                await page(reader, writer)
        writer.close()
        with suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()
        self.connections -= 1


@asynccontextmanager
async def web(pages=None, host="127.0.0.1", context=None, port=0):
    """Run a server within the block."""
    site = Web(pages or {"/a": page(PNG)})
    async with await asyncio.start_server(site.welcome, host, port, ssl=context) as server:
        site.port = server.sockets[0].getsockname()[1]
        site.url = f"http://{host}:{site.port}"
        yield site


def page(body, status=200, **headers):
    """Return a response with this body."""
    lines = {"content-length": len(body), **{name.replace("_", "-"): value for name, value in headers.items()}}
    header_lines = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"HTTP/1.1 {status} Said\r\n{header_lines}\r\n".encode() + body


def moved(location, status=302):
    """Return a redirect."""
    return page(b"", status, location=location)


def names(**addresses):
    """Return a resolver for names under .test."""

    async def resolve(host, port):
        return addresses[host.removesuffix(".test")]

    return resolve


@asynccontextmanager
async def encrypted(name):
    """Run a server with a certificate for this name, and yield it with a context that trusts it."""
    ca, server = trustme.CA(), ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    ca.issue_cert(name).configure_cert(server)
    client = ssl.create_default_context()
    ca.configure_trust(client)
    async with web(context=server) as site:
        yield site, client


async def endless(reader, writer):
    """Send a response without an end."""
    writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"10000\r\n" + PNG.ljust(65536, b"\0") + b"\r\n")
        await writer.drain()


async def hanging(reader, writer):
    """Send the beginning of a response, and wait for the other side to disconnect."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n" + PNG)
    await reader.read()
