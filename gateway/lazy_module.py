"""Import a module at its first use, from any thread."""

from importlib import import_module
from typing import Any


class _LoadedModule:
    """The namespace of a module."""

    __slots__ = ("__dict__", "_name")


class LazyModule(_LoadedModule):
    """A module that is imported at its first use, which several threads may do at once.

    importlib's LazyLoader shows the other threads a half loaded module, before Python 3.12.3.
    """

    __slots__ = ()

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - the module's
        module = import_module(self._name)
        self.__dict__ = module.__dict__
        self.__class__ = _LoadedModule  # type: ignore[assignment]  # so that later uses cost less
        return getattr(module, name)
