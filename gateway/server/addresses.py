"""Which addresses a client may make the gateway connect to: those of the public internet, where everybody can."""

from collections.abc import Callable, Collection, Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

AddressFilter = Callable[[str, int], bool]

# Addresses where clouds give machines their secrets; never a place of images, in any network.
_METADATA = tuple(
    map(
        ip_address,
        (
            "169.254.169.254",
            "169.254.170.2",  # a container's, at Amazon; the next one and fd00:ec2::23 are a pod's
            "169.254.170.23",
            "fd00:ec2::23",
            "fd00:ec2::254",
            "fd20:ce::254",  # Google's
            "100.100.100.200",  # Alibaba's
            "168.63.129.16",  # Azure's
            "192.0.0.192",  # Oracle's
        ),
    )
)
# Addresses of the IANA registries for special purposes that `is_global` counts as public, in one version of Python or
# another.
_SPECIAL_4 = tuple(
    map(
        IPv4Network,
        (
            "168.63.129.16/32",  # Azure's
            "192.0.0.0/24",  # protocols
            "192.88.99.0/24",  # once relays of 6to4
        ),
    )
)
_GLOBAL_6 = IPv6Network("2000::/3")  # all that is given out; the rest is special, NAT64 and mapped IPv4 included
_SPECIAL_6 = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # protocols; Teredo, which has an IPv4 address inside
            "2001:db8::/32",
            "2002::/16",  # 6to4, which has one as well
            "3fff::/20",
        ),
    )
)


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """True if the address is that of one machine on the internet, and is written in no other way than its own."""
    if not address.is_global or address.is_multicast or address.is_reserved:
        return False
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _SPECIAL_4)
    return address in _GLOBAL_6 and not any(address in network for network in _SPECIAL_6)


def address_filter(networks: Iterable[str], ports: Collection[int]) -> AddressFilter:
    """Tells whether one may connect to a port of an address: one of these of a public one, or any of these networks."""
    known = [ip_network(network) for network in networks]

    def check(text: str, port: int) -> bool:
        address = ip_address(text.partition("%")[0])  # the zone makes no other address of it
        if address in _METADATA:
            return False
        return (port in ports and is_public(address)) or any(address in network for network in known)

    return check
