"""Faults of the gateway's own code."""

from pkgutil import resolve_name

from pytest import MonkeyPatch


def fail_once(monkeypatch: MonkeyPatch, name: str) -> None:
    """Let the next call of a function or method fail; name: with its module."""
    real, failed = resolve_name(name), []

    def call(*arguments, **options):
        if failed:
            return real(*arguments, **options)
        failed.append(True)
        raise RuntimeError("a fault")

    monkeypatch.setattr(name, call)
