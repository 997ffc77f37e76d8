"""Test what the C library is told to do with free memory."""

from types import SimpleNamespace

from gateway.server.http import memory


def test_memory_is_returned_by_the_library_of_the_system(monkeypatch):
    calls = []
    library = SimpleNamespace(mallopt=lambda *arguments: calls.append(arguments), malloc_trim=calls.append)
    monkeypatch.setattr(memory, "_library", library)
    memory.return_memory()
    memory.trim()
    assert calls == [(-3, 256 << 10), (-1, 1 << 20), (-8, 2), 0]


def test_library_that_knows_nothing_of_it_is_left_alone(monkeypatch):
    monkeypatch.setattr(memory, "_library", SimpleNamespace())
    memory.return_memory()
    memory.trim()
