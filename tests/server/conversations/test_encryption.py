"""Test sealed reasoning: only the gateway that sealed it opens it, and only for the same tenant."""

import base64
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.config.schema import StoreSettings
from gateway.request import StoredReasoning
from gateway.server.conversations.encryption import EncryptionKeys, _make
from support.sampling import examples

SECRET = "sealing-secret-0123456789"
THOUGHT = StoredReasoning(
    "Hm, a sécret thought.", ({"type": "thinking", "thinking": "Hm", "signature": "s"},), "claude"
)


def ring(*secrets, **more):
    return EncryptionKeys(StoreSettings(sealing_keys=secrets, **more))


KNOWN = ring(SECRET)

texts = st.text(max_size=40)
blocks = st.dictionaries(
    texts, st.recursive(st.none() | st.integers(0, 9) | texts, lambda inner: st.lists(inner, max_size=3))
)
thoughts = st.builds(StoredReasoning, texts, st.lists(blocks, max_size=3).map(tuple), texts)


@settings(max_examples=examples(200), deadline=None)
@given(thoughts, st.text("abc.-_", max_size=5))
def test_sealed_reasoning_is_opened_unchanged_for_its_tenant_only(thought, tenant):
    sealed = KNOWN.sealer(tenant).seal(thought)
    assert sealed.startswith("gw1.") and set(sealed[4:]) <= set(
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    )
    assert KNOWN.sealer(tenant).open(sealed) == thought
    assert ring(SECRET).sealer(tenant).open(sealed) == thought
    assert ring(SECRET).sealer(f"{tenant}x").open(sealed) is None


def test_sealed_reasoning_differs_each_time():
    assert len({KNOWN.sealer("").seal(THOUGHT) for _ in range(20)}) == 20


def test_sealing_key_that_is_first_seals_and_all_keys_open():
    old, new = ring("old"), ring("new")
    both = ring("new", "old").sealer("a")
    assert both.open(old.sealer("a").seal(THOUGHT)) == THOUGHT
    assert new.sealer("a").open(both.seal(THOUGHT)) == THOUGHT
    assert old.sealer("a").open(both.seal(THOUGHT)) is None
    assert ring("o").sealer("a").open(ring("o" * 5000).sealer("a").seal(THOUGHT)) is None


def test_sealed_reasoning_with_one_changed_character_is_not_opened():
    sealer = KNOWN.sealer("a")
    sealed = sealer.seal(StoredReasoning("Hm"))
    for i, character in enumerate(sealed):
        for other in ("A", "B", "g", "_", "=", " ", "\n", "é", ""):
            if other == character:
                continue
            assert sealer.open(sealed[:i] + other + sealed[i + 1 :]) is None, (i, other)
    for i in range(len(sealed)):
        assert sealer.open(sealed[:i]) is None and sealer.open(f"{sealed[:i]}\n{sealed[i:]}") is None
    for added in ("A", "=", "==", "\n", " "):
        assert sealer.open(sealed + added) is None


FOREIGN = ["", "gw1.", "gw1.=", "gw1.A", "gw1.AAAA", "gw2.AAAA", "gAAAAABo", "{}", "\ud83d", "gw1.\ud83d", "gw1.é", "gw1.\x00", "gw1." + "A" * 400]  # fmt: skip


@pytest.mark.parametrize("text", FOREIGN)
def test_sealed_reasoning_of_others_is_not_opened(text):
    assert KNOWN.sealer("a").open(text) is None


@settings(max_examples=examples(300), deadline=None)
@given(
    st.text(max_size=60)
    | st.binary(max_size=60).map(lambda raw: "gw1." + base64.urlsafe_b64encode(raw).rstrip(b"=").decode())
)
def test_sealed_reasoning_of_any_text_is_not_opened(text):
    assert KNOWN.sealer("a").open(text) is None


def test_sealed_reasoning_with_only_a_key_id_is_not_opened():
    sealer = KNOWN.sealer("a")
    id = base64.urlsafe_b64decode(sealer.seal(THOUGHT)[4:16])[:8]
    for length in range(60):
        text = base64.urlsafe_b64encode(id + bytes(length)).rstrip(b"=").decode()
        assert sealer.open(f"gw1.{text}") is None


def test_sealed_reasoning_that_is_too_long_is_not_opened():
    assert KNOWN.sealer("a").open("gw1." + "A" * (32 << 20)) is None


def test_sealed_reasoning_of_another_form_is_not_opened():
    assert KNOWN.sealer("a").open(KNOWN.sealer("a").seal({"text": 7})) is None


# A key that the gateway makes


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


FILES = {
    "sqlite:///./gateway.db": "gateway.db.key",
    "sqlite+aiosqlite:///store.db?timeout=5": "store.db.key",
    "sqlite://": "gateway.key",
    "sqlite:///:memory:": "gateway.key",
    "sqlite:///file:shared?mode=memory&uri=true": "gateway.key",
    "postgresql://user:password@host/base": "gateway.key",
    "postgresql:///base": "gateway.key",
}


@pytest.mark.parametrize("url", FILES)
def test_sealing_key_is_made_beside_the_store_if_none_is_configured(url, here):
    keyring = EncryptionKeys(StoreSettings(url=url))
    sealer = keyring.sealer("a")
    assert [*here.iterdir()] == []  # no key was needed yet
    sealed = sealer.seal(THOUGHT)
    (file,) = here.iterdir()
    assert file.name == FILES[url] and file.stat().st_mode & 0o777 == 0o600
    assert (
        keyring.sealer("a").open(sealed) == EncryptionKeys(StoreSettings(url=url)).sealer("a").open(sealed) == THOUGHT
    )
    file.unlink()
    assert EncryptionKeys(StoreSettings(url=url)).sealer("a").open(sealed) is None


def test_sealing_key_is_in_the_folder_of_the_store(here, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    assert EncryptionKeys(StoreSettings(url=f"sqlite:///{elsewhere}/g.db")).sealer("").open("gw1." + "A" * 60) is None
    assert [one.name for one in elsewhere.iterdir()] == ["g.db.key"] and [*here.iterdir()] == []


def test_sealing_key_file_is_not_made_if_keys_are_configured(here):
    sealer = ring(SECRET).sealer("a")
    assert sealer.open(sealer.seal(THOUGHT)) == THOUGHT
    assert [*here.iterdir()] == []


def test_sealing_key_file_that_exists_is_kept(here):
    Path("gateway.db.key").write_text("0123456789" * 4 + "\n")
    sealed = EncryptionKeys(StoreSettings()).sealer("a").seal(THOUGHT)
    assert ring("0123456789" * 4).sealer("a").open(sealed) == THOUGHT
    assert Path("gateway.db.key").read_text() == "0123456789" * 4 + "\n"


WORKER = """
import sys
from gateway.config.schema import StoreSettings
from gateway.request import StoredReasoning
from gateway.server.conversations.encryption import EncryptionKeys, _make
sealer = EncryptionKeys(StoreSettings()).sealer("a")
print(end="ready\\n", flush=True)
sys.stdin.readline()
print(sealer.seal(StoredReasoning("Hm")), flush=True)
"""


def test_sealing_key_is_the_same_for_workers_that_start_together(here):
    workers = [
        subprocess.Popen([sys.executable, "-c", WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    for worker in workers:
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        worker.stdin.write("\n")
        worker.stdin.flush()
    for worker in workers:
        sealed, _ = worker.communicate(timeout=60)
        assert worker.returncode == 0
        assert EncryptionKeys(StoreSettings()).sealer("a").open(sealed.strip()) == StoredReasoning("Hm")
    assert [one.name for one in here.iterdir()] == ["gateway.db.key"]


def unwritable(here):
    return StoreSettings(url=f"sqlite:///{here}/missing/g.db")


def empty(here):
    (here / "g.db.key").touch()
    return StoreSettings(url=f"sqlite:///{here}/g.db")


def folder(here):
    (here / "g.db.key").mkdir()
    return StoreSettings(url=f"sqlite:///{here}/g.db")


@pytest.mark.parametrize("made", [unwritable, empty, folder])
def test_sealing_key_that_cannot_be_stored_is_logged_with_advice(made, here, caplog):
    store = made(here)
    keyring = EncryptionKeys(store)
    sealed = keyring.sealer("a").seal(THOUGHT)
    assert keyring.sealer("a").open(sealed) == THOUGHT
    (warning,) = caplog.messages
    assert "g.db.key" in warning and "set store.sealing_keys" in warning
    assert EncryptionKeys(store).sealer("a").open(sealed) is None


def test_sealing_key_is_in_no_repr_and_no_log(here, caplog):
    caplog.set_level("DEBUG")
    kept = EncryptionKeys(StoreSettings())
    given = ring(SECRET)
    shown = [repr(one) for ring in (kept, given) for one in (ring, ring.sealer("a"), vars(ring))]
    for keyring in (kept, given):
        keyring.sealer("a").open(keyring.sealer("a").seal(THOUGHT))
        shown += [repr(keyring), repr(vars(keyring)), keyring.sealer("a").seal(THOUGHT)]
    EncryptionKeys(unwritable(here)).sealer("a").seal(THOUGHT)
    secrets = [SECRET, Path("gateway.db.key").read_text().strip(), THOUGHT.text]
    assert not [secret for secret in secrets for text in (*shown, caplog.text) if secret in text]


def test_sealing_key_file_is_never_overwritten(here):
    _make(here / "k")
    first = (here / "k").read_bytes()
    _make(here / "k")
    assert (here / "k").read_bytes() == first and [one.name for one in here.iterdir()] == ["k"]
