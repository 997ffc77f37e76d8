"""The tools that run at the gateway: what the model says of them in, items and calls to be run out.

Pure.  `Loop` hears the rounds with a backend, as the last of their filters, and `Between` is the source of the rounds
between them, in which tools run.  It knows nothing of what a tool is, nor of who runs it.
"""

from gateway.hosted.calls import Ours, Result, Run
from gateway.hosted.loop import Between, Limits, Loop, Unseen
from gateway.hosted.offering import offered
from gateway.hosted.sources import Sources

__all__ = ["Between", "Limits", "Loop", "Ours", "Result", "Run", "Sources", "Unseen", "offered"]
