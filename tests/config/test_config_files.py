"""Test files that a configuration names: replacement, faults and changes."""

import json
import os
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.config import ConfigError, UnreadableFile, build_config, key_digest, parse, read_document
from gateway.server.process.config_source import ConfigSource, ConfigWatcher

MIB = 1 << 20
TEMPLATE = {"fields": {"thinking": {"open": "<t>", "close": "</t>"}}}


def origins(text, files=None):
    """Return the value of a text with file references, and the faults."""

    def held(path):
        if path not in (files or {}):
            raise UnreadableFile(f"{path} cannot be read: it is not there")
        return files[path]

    document = read_document(json.dumps([text], ensure_ascii=False), "g", {"A": "${file:a}", "file": "F"}, held)
    return document.data[0], [fault.text for fault in document.faults]


# What they stand for


@pytest.mark.parametrize(
    ("text", "stands_for"),
    [
        ("${file:a}", "one"),
        ("<${file:a}-${file:sub/b c.txt}>", "<one-$two>"),
        ("$${file:a}", "${file:a}"),
        ("${A}", "${file:a}"),
        ("${file:-x}${file}", "FF"),
        ("${file:nested}", "${file:a}${A}"),
        ("${file:empty}", ""),
    ],
)
def test_config_file_reference_is_replaced_by_plain_text(text, stands_for):
    files = {"a": "one", "sub/b c.txt": "$two", "nested": "${file:a}${A}", "empty": ""}
    assert origins(text, files) == (stands_for, [])


def test_config_file_reference_to_a_missing_file_is_a_fault():
    assert origins("${file:no}") == ("", ["the file no cannot be read: it is not there"])
    with pytest.raises(ConfigError) as caught:
        parse("server:\n  host: ${file:x}\n", "g", {}, [])
    assert str(caught.value.faults[0]) == "g:2: server.host: the file x cannot be read: files are not available here"


@settings(deadline=None)
@given(st.text(), st.text(st.characters(exclude_characters="}", exclude_categories=["C", "Z"]), min_size=1))
def test_config_file_reference_takes_any_path_and_text(text, path):
    assert origins(f"${{file:{path}}}", {path: text}) == ("F" if path.startswith("-") else text, [])


def config_of(folder, **auth):
    file = folder / "gateway.yaml"
    file.write_text("models:\n\nauth: " + json.dumps({"keys": [{"name": "a", **auth}]}))
    return ConfigSource(file).read()


def keys_of(config):
    return [one.get_secret_value() for key in config.auth.keys for one in key.key]


@pytest.mark.parametrize("text", ["k1", "k1\n", "k1\r\n", "\ufeffk1\n"])
@pytest.mark.parametrize("named", ["sub/key", "./sub/../sub/key", "{}/sub/key", "{}/link"])
def test_config_file_reference_is_relative_and_loses_one_newline(tmp_path, text, named):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "key").write_bytes(text.encode())
    (tmp_path / "link").symlink_to("sub/key")
    found = config_of(tmp_path, key=f"${{file:{named.format(tmp_path)}}}")
    assert keys_of(found) == [key_digest("k1")]


def test_config_file_reference_takes_up_to_a_mebibyte(tmp_path):
    (tmp_path / "key").write_text("k" * (MIB - 1) + "\n")
    assert keys_of(config_of(tmp_path, key="${file:key}")) == [key_digest("k" * (MIB - 1))]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none", "{}/none cannot be read: No such file or directory"),
        ("long", "{}/long is larger than 1048576 bytes"),
        ("/dev/zero", "/dev/zero is not a regular file"),
        ("pipe", "{}/pipe is not a regular file"),
        ("folder", "{}/folder is not a regular file"),
        ("latin", "{}/latin is not UTF-8 at byte 3"),
        ("key/below", "{}/key/below cannot be read: Not a directory"),
        ("loop", "{}/loop cannot be read: Too many levels of symbolic links"),
        ("n" * 300, f"{{}}/{'n' * 300} cannot be read: File name too long"),
        ("\0", "{}/\0 cannot be read: no file can have this name"),
        ("\ud800", "{}/\ud800 cannot be read: no file can have this name"),
    ],
)
def test_config_file_reference_that_is_unreadable_is_a_fault(tmp_path, name, message):
    (tmp_path / "long").write_text("s3cret" * MIB)
    (tmp_path / "latin").write_bytes(b"s3c\xe4")
    (tmp_path / "key").write_text("s3cret")
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError) as caught:
        config_of(tmp_path, key=["${file:key}", f"${{file:{name}}}"])
    messages = [str(fault) for fault in caught.value.faults]
    where = f"{tmp_path}/gateway.yaml:3: auth.keys[0].key[1]: "
    assert messages[0].startswith(f"{where}the file {message.format(tmp_path)}")
    assert not any("s3c" in line for line in messages)


def test_config_file_reference_text_is_never_shown(tmp_path):
    (tmp_path / "key").write_text("s3cret value")
    (tmp_path / "gateway.yaml").write_text(
        "server: {port: '${file:key}'}\nbackends: {a: {kind: '${file:key}', url: '${file:key}', api_key: '${file:key}'}}"
    )
    with pytest.raises(ConfigError) as caught:
        ConfigSource(tmp_path / "gateway.yaml").read()
    assert len(caught.value.faults) == 4
    assert "s3cret" not in str(caught.value) and "${file:key}" in str(caught.value)


def test_config_without_a_path_has_no_file_references():
    document = read_document("server: {host: '${file:/dev/null}'}", "g", {})
    with pytest.raises(ConfigError, match=re.escape("the file /dev/null cannot be read: files are not available here")):
        build_config(document, [])


# When they change


class Watched:
    """A watched configuration with a key in one file and a template in another."""

    def __init__(self, folder, **more):
        self.folder = folder
        self.write_file("key", "k1\n")
        self.write_file("own.json", json.dumps(TEMPLATE))
        self.writes()
        self.source = ConfigSource(folder / "gateway.yaml")
        self.watch = ConfigWatcher(self.source.read(), self.source)

    def write_file(self, name, text):
        new = self.folder / "new"
        new.write_text(text)
        new.replace(self.folder / name)

    def writes(self, *more, key="${file:key}"):
        model = {"format": "response_template", "response_template": "own.json"}
        keys = [{"name": "a", "key": key}, *more]
        known = {"backends": {"b": {"url": "http://b"}}, "models": {"m": model}, "auth": {"keys": keys}}
        self.write_file("gateway.yaml", json.dumps(known))

    def news(self):
        """Look twice, as the first look finds a file that is still changing."""
        return self.watch.poll() or self.watch.poll()


def test_config_watch_reports_a_changed_file(tmp_path):
    file = Watched(tmp_path)
    assert file.news() is None
    file.write_file("key", "k22\n")
    assert file.watch.poll() is None, "somebody may be writing it"
    assert keys_of(file.watch.poll()) == [key_digest("k22")]
    assert file.news() is None
    file.write_file("own.json", json.dumps({"fields": {"thinking": {"open": "<thought>", "close": "</thought>"}}}))
    assert file.news().models["m"].response_template["fields"]["thinking"]["open"] == "<thought>"
    assert file.news() is None


def test_config_watch_follows_a_link_that_is_swapped(tmp_path):
    file = Watched(tmp_path)
    for name, text in (("one", "k1"), ("two", "k2")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "key").write_text(text)
    (tmp_path / "data").symlink_to("one")
    file.writes(key="${file:data/key}")
    assert file.news() is None, "the same key"
    (tmp_path / "next").symlink_to("two")
    (tmp_path / "next").replace(tmp_path / "data")
    assert keys_of(file.news()) == [key_digest("k2")]


def test_config_watch_ignores_an_invalid_file_until_it_is_valid(tmp_path, caplog):
    file = Watched(tmp_path)
    file.write_file("key", "two words")
    assert file.news() is None
    assert "gateway.yaml:1: auth.keys[0].key: should be visible ASCII characters" in caplog.text
    assert "two words" not in caplog.text
    file.write_file("key", "k3")
    assert keys_of(file.news()) == [key_digest("k3")]


def test_config_watch_reports_a_lost_file_once(tmp_path, caplog):
    file = Watched(tmp_path)
    (tmp_path / "key").unlink()
    for _ in range(3):
        assert file.news() is None
    assert caplog.text.count(f"the file {tmp_path}/key cannot be read: No such file or directory") == 1
    file.write_file("key", "k4")
    assert keys_of(file.news()) == [key_digest("k4")]


def test_config_watch_forgets_a_lost_file_that_is_not_named_any_more(tmp_path):
    file = Watched(tmp_path)
    (tmp_path / "key").unlink()
    file.writes({"name": "c", "key": "k6"}, key="k5")
    assert keys_of(file.news()) == [key_digest("k5"), key_digest("k6")]
    file.write_file("key", "not watched any more")
    assert file.news() is None


def test_config_watch_follows_a_newly_named_file(tmp_path):
    file = Watched(tmp_path)
    file.write_file("more", "k7")
    file.writes({"name": "b", "key": "${file:more}"})
    assert keys_of(file.news()) == [key_digest("k1"), key_digest("k7")]
    file.write_file("more", "k8")
    assert keys_of(file.news()) == [key_digest("k1"), key_digest("k8")]


def test_config_watch_reads_once_after_a_signal(tmp_path, caplog):
    caplog.set_level("INFO")
    file = Watched(tmp_path)
    file.write_file("key", "k9")
    file.watch.request_reload()
    assert keys_of(file.watch.poll()) == [key_digest("k9")]
    assert file.news() is None
    assert "no changes" not in caplog.text
    assert Path(tmp_path / "key").read_text() == "k9"
