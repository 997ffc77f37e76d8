"""Test that the table of the SDK's groups of methods has all of the installed SDK's, and says what the gateway does."""

import inspect
import warnings
from contextlib import suppress
from functools import cache

import httpx
import openai
import pytest
from openai._resource import SyncAPIResource
from starlette.routing import Match

from gateway.api.sdk_groups import SDK_GROUPS, refusal
from gateway.backends.pass_through import PASS_THROUGH
from gateway.server.app import create_app
from support.app import settings

FILES = ("file", "image", "video", "data")
REFUSED = [group for group in SDK_GROUPS if group.treatment == "refused"]
NOT_ROUTED = {("DELETE", "/v1/models/x")}


def resources(parent, prefix=""):
    """Yield the resources of a client with their names, with those below them."""
    for name in dir(parent):
        if not name.startswith(("_", "with_")) and isinstance(resource := getattr(parent, name), SyncAPIResource):
            yield prefix + name, resource
            yield from resources(resource, f"{prefix}{name}.")


def methods(resource):
    """Yield the methods of a resource."""
    for name, member in vars(type(resource)).items():
        if not name.startswith(("_", "with_")) and inspect.isfunction(member):
            yield getattr(resource, name)


def arguments(method):
    """Return a text for each required argument, and bytes for each file."""
    parameters = inspect.signature(method).parameters.values()
    return {one.name: b"x" if one.name in FILES else "x" for one in parameters if one.default is one.empty}


@cache
def requests():
    """Return the method and path of the requests of each group.  Methods that check their arguments make none."""
    made = []

    def note(request):
        made.append((request.method, request.url.path))
        raise httpx.ConnectError("noted")

    transport = httpx.MockTransport(note)
    client = openai.OpenAI(
        api_key="x", admin_api_key="x", base_url="http://gateway/v1", max_retries=0,
        http_client=httpx.Client(transport=transport),
    )  # fmt: skip
    found = {}
    with warnings.catch_warnings(action="ignore"):
        for name, resource in resources(client):
            made.clear()
            for method in methods(resource):
                with suppress(Exception):
                    method(**arguments(method))
            found[name] = {*made}
    found["realtime"] = found["beta.realtime"] = {("GET", "/v1/realtime")}  # `connect` opens a WebSocket
    return found


def group_of(name):
    """Return the row of a group of methods, by the longest of its names."""
    fitting = [(len(one), group) for group in SDK_GROUPS for one in group.names if f"{name}.".startswith(f"{one}.")]
    return max(fitting, key=lambda fit: fit[0], default=(0, None))[1]


def test_sdk_groups_are_those_of_the_installed_sdk():
    with_methods = {name for name, made in requests().items() if made}
    assert len(with_methods) > 60
    assert [name for name in sorted(with_methods) if not group_of(name)] == []
    assert [name for group in SDK_GROUPS for name in group.names if name not in requests()] == []


@pytest.mark.parametrize("group", SDK_GROUPS, ids=lambda group: group.names[0])
def test_sdk_group_has_the_paths_of_its_methods(group):
    paths = {path for name, made in requests().items() if group_of(name) is group for _, path in made}
    if "vector_stores" in group.names:
        paths -= {"/v1/files"}  # of its methods that upload first
    beginnings = tuple(f"/v1{path}" for path in group.paths)
    assert [path for path in paths if not path.startswith(beginnings)] == []
    assert [one for one in beginnings if not any(path.startswith(one) for path in paths)] == []


def test_refused_groups_say_what_to_use():
    routes = create_app(settings("http://127.0.0.1:1")).routes
    for group in REFUSED:
        for path in group.paths:
            assert refusal(f"/v1{path}") == refusal(f"{path}/x") == group.note
            assert [route.path for route in routes if route.path.startswith(f"/v1{path}")] == []
        assert group.note.count(".") >= 2 and group.note.endswith(".")
    assert refusal("/v1/filesystem") is refusal("/v1/chat/completions") is refusal("/v1") is None


def test_methods_have_a_route_unless_their_path_is_refused():
    routes = create_app(settings("http://127.0.0.1:1")).routes
    for method, path in {one for made in requests().values() for one in made}:
        scope = {"type": "http", "method": method, "path": path, "headers": []}
        routed = any(route.matches(scope)[0] is Match.FULL for route in routes)
        assert routed == (refusal(path) is None and (method, path) not in NOT_ROUTED), (method, path)


def test_groups_passed_on_are_those_of_the_table_of_endpoints():
    passed = {path for group in SDK_GROUPS if group.treatment == "passed on" for path in group.paths}
    sdk = {path for made in requests().values() for _, path in made}
    rows = {row.path for row in PASS_THROUGH} & sdk
    assert [path for path in rows if not path.removeprefix("/v1").startswith(tuple(passed))] == []
