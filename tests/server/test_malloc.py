"""Test what the C library is told to do with free memory."""

from types import SimpleNamespace

from gateway.server import malloc


def test_memory_is_returned_by_the_library_of_the_system(monkeypatch):
    told = []
    library = SimpleNamespace(mallopt=lambda *said: told.append(said), malloc_trim=told.append)
    monkeypatch.setattr(malloc, "_library", library)
    malloc.return_memory()
    malloc.trim()
    assert told == [(-3, 256 << 10), 0]


def test_library_that_knows_nothing_of_it_is_left_alone(monkeypatch):
    monkeypatch.setattr(malloc, "_library", SimpleNamespace())
    malloc.return_memory()
    malloc.trim()
