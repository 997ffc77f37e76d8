"""Keep coverage from hanging when threads end, on Python before 3.12.

Coverage keeps an entry for each greenlet in a WeakKeyDictionary, whose callback is Python code.  greenlet drops the
greenlet of an ended thread in a pending call.  There traced Python code loops for ever if another thread ends at the
same time: the interpreter sees a pending call again and again, and runs none within another.

This is a plugin of coverage, since it must be in force in each process that coverage measures.
"""

import sys
import weakref

from greenlet import greenlet


class WeakKeys(weakref.WeakKeyDictionary):
    """A WeakKeyDictionary that runs no code when a greenlet dies, and keeps its entry."""

    def __setitem__(self, key, value):
        if isinstance(key, greenlet):
            self.data[weakref.ref(key)] = value
        else:
            super().__setitem__(key, value)


def coverage_init(_registry, _options):
    """Give coverage these dictionaries; each thread asks for one when it starts."""
    if sys.version_info < (3, 12):
        weakref.WeakKeyDictionary = WeakKeys
