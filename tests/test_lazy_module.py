"""Import modules at their first use."""

import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from types import SimpleNamespace

import pytest

from gateway.lazy_module import LazyModule

SLOW = "import slow_gate\nslow_gate.begun.set()\nslow_gate.go.wait()\nvalue = 1\n"


@pytest.fixture
def gate(monkeypatch, tmp_path):
    """Return the events of the import of a module `slow`: it has begun, and it may go on."""
    (tmp_path / "slow.py").write_text(SLOW)
    monkeypatch.syspath_prepend(tmp_path)
    gate = SimpleNamespace(begun=Event(), go=Event())
    monkeypatch.setitem(sys.modules, "slow_gate", gate)
    yield gate
    del sys.modules["slow"]


def test_lazy_module_is_imported_at_its_first_use(gate):
    gate.go.set()
    lazy = LazyModule("slow")
    assert not gate.begun.is_set()
    assert lazy.value == 1 and gate.begun.is_set()
    assert vars(lazy) is vars(sys.modules["slow"])


def test_lazy_module_is_whole_for_each_of_the_threads_that_use_it_first(gate):
    lazy = LazyModule("slow")
    with ThreadPoolExecutor() as threads:
        first = threads.submit(getattr, lazy, "value")
        gate.begun.wait()
        second = threads.submit(lambda: (gate.go.set(), lazy.value)[1])
        assert (first.result(), second.result()) == (1, 1)


def test_lazy_module_has_no_attributes_of_its_own(gate):
    gate.go.set()
    lazy = LazyModule("slow")
    for _ in range(2):
        with pytest.raises(AttributeError, match="has no attribute 'other'"):
            _ = lazy.other
