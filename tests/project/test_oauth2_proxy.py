"""Check the example of a proxy that signs users in: its syntax, its options, and its agreement with the gateway."""

import tomllib
from urllib.parse import urlsplit

from gateway.config import parse
from gateway.formats import format_names
from support.paths import ROOT

FOLDER = ROOT / "deploy/oauth2-proxy"
# The options of oauth2-proxy 7 that the example uses, with the types of their values.
OPTIONS = {
    "client_id": str,
    "cookie_name": str,
    "cookie_samesite": str,
    "cookie_secure": bool,
    "email_domains": list,
    "https_address": str,
    "oidc_groups_claim": str,
    "oidc_issuer_url": str,
    "pass_authorization_header": bool,
    "pass_basic_auth": bool,
    "pass_host_header": bool,
    "pass_user_headers": bool,
    "provider": str,
    "redirect_url": str,
    "scope": str,
    "tls_cert_file": str,
    "tls_key_file": str,
    "upstream_timeout": str,
    "upstreams": list,
}


def test_oauth2_proxy_example_has_known_options_and_no_secrets():
    options = tomllib.loads((FOLDER / "oauth2-proxy.cfg").read_text("utf-8"))
    assert {name: type(value) for name, value in options.items()} == OPTIONS


def test_oauth2_proxy_example_fits_its_gateway():
    options = tomllib.loads((FOLDER / "oauth2-proxy.cfg").read_text("utf-8"))
    text = (FOLDER / "gateway.yaml").read_text("utf-8")
    config = parse(text, "gateway.yaml", {"AGENTS_KEY": "a-key-of-agents"}, format_names())
    (upstream,) = map(urlsplit, options["upstreams"])
    assert (upstream.hostname, upstream.port) == (config.server.host, config.server.port)
    assert config.server.forwarded_allow_ips == ("127.0.0.1/32",)
    assert {config.auth.header.user, config.auth.header.groups} <= {
        "x-forwarded-user",
        "x-forwarded-email",
        "x-forwarded-groups",
    }
    assert options["pass_user_headers"] and not options["pass_authorization_header"]
