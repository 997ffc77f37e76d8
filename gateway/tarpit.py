"""Delay clients that fail again and again, and limit their waiting responses.

Pure: `now` is in seconds of any clock that never goes back.  Clients are the networks of `client_network`.
"""

from collections import Counter
from ipaddress import IPv6Address, IPv6Network, ip_address

from msgspec import Struct

LONGEST = 5.0  # seconds that an answer waits
_FREE = 5  # failures that are answered at once,
_SHORTEST = 0.1  # and seconds that the next one waits; each one after it twice as long
_WORST = 12.0  # failures beyond which nothing gets worse
_FORGIVEN = 20.0  # seconds in which one of them is forgotten
_PLACES = 16  # answers of a client that wait at a time,
_ALL_PLACES = 256  # and of all clients: beyond it no response waits, as waiting ones take places of others
_CLIENTS = 10_000  # that are remembered
_SILENCE = 60.0  # seconds between two words about a client
_ADDRESS = 64  # characters of an address that is none


class _FailureRecord(Struct):
    """failures: those that are not forgotten at the time of the last one; untold: those since the last word."""

    failures: float = 0.0
    last: float = 0.0
    untold: int = 0
    silent_until: float = 0.0


class Tarpit:
    """clients: how many are remembered; beyond that the one that failed least recently is forgotten."""

    def __init__(self, clients: int = _CLIENTS) -> None:
        self._clients = clients
        self._records: dict[str, _FailureRecord] = {}  # the one that failed last is the last
        self._waiting: Counter[str] = Counter()

    def full(self, client: str) -> bool:
        """Return True if one more waiting response would tell a client more than it may know."""
        return self._waiting[client] >= _PLACES

    @property
    def empty(self) -> bool:
        """Return True if no response waits."""
        return not self._waiting

    def enter(self, client: str, now: float) -> float:
        """Count a failure; return the seconds that its response waits.  Call `leave` at its end."""
        record = self._records.pop(client, None) or _FailureRecord(last=now)
        left = max(record.failures - (now - record.last) / _FORGIVEN, 0.0)
        record.failures, record.last = min(left + 1, _WORST), now
        record.untold += 1
        self._records[client] = record
        if len(self._records) > self._clients:
            del self._records[next(iter(self._records))]
        crowded = self._waiting.total() >= _ALL_PLACES
        self._waiting[client] += 1
        return 0.0 if crowded else _delay(record.failures)

    def leave(self, client: str) -> None:
        self._waiting[client] -= 1
        if not self._waiting[client]:
            del self._waiting[client]

    def to_tell(self, client: str, now: float) -> int:
        """How often one that has just failed did so since this was asked last; 0 where that is too recent."""
        record = self._records[client]
        if now < record.silent_until:
            return 0
        told, record.untold, record.silent_until = record.untold, 0, now + _SILENCE
        return told


def client_network(address: str) -> str:
    """Whose address it is: an IPv4 address, or the /64 of an IPv6 address, as that is what one client has."""
    try:
        found = ip_address(address)
    except ValueError:
        return address[:_ADDRESS]  # whatever a proxy has written
    if not isinstance(found, IPv6Address):
        return str(found)
    return str(found.ipv4_mapped or IPv6Network((int(found) >> 64 << 64, 64)))


def _delay(failures: float) -> float:
    return 0.0 if failures <= _FREE else min(_SHORTEST * 2 ** (failures - _FREE - 1), LONGEST)
