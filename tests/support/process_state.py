"""Give back after a test what a command sets for its whole process, which later tests would run with."""

import gc
import logging
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_LOGGERS = ("gateway", "gateway.content", "gateway.requests", "uvicorn", "uvicorn.access", "uvicorn.error")


@contextmanager
def keep() -> Iterator[None]:
    """Keep the collector's thresholds, the hooks of failures, the handler of SIGHUP, and what each logger writes."""
    hangup = signal.getsignal(signal.SIGHUP)
    thresholds, hooks = gc.get_threshold(), (sys.excepthook, threading.excepthook)
    loggers = [(logger, logger.level, [*logger.handlers]) for logger in map(logging.getLogger, _LOGGERS)]
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        sys.excepthook, threading.excepthook = hooks
        if signal.getsignal(signal.SIGHUP) is not hangup:
            signal.signal(signal.SIGHUP, hangup)
        for logger, level, handlers in loggers:
            if logger.level != level:
                logger.setLevel(level)
            logger.handlers[:] = handlers
