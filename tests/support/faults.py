"""Faults of the gateway's own code."""

from pytest import MonkeyPatch


def fail_once(monkeypatch: MonkeyPatch, name: str) -> None:
    """Let the next call of a function fail; name: with its module."""
    failed = []

    def call(*arguments, **options):
        if failed:
            return real(*arguments, **options)
        failed.append(True)
        raise RuntimeError("a fault")

    module, _, function = name.rpartition(".")
    real = getattr(__import__(module, fromlist=[function]), function)
    monkeypatch.setattr(name, call)
