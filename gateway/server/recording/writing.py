"""A program that writes down the recordings on its standard input, and says of each that it cannot why, in a line.

Each comes as its length and so many bytes, a WriteOrder.  It ends with its input and not before, whatever a service
manager tells it, as recordings may be on their way; and it lets the gateway go first.
"""

import os
import signal
import sys
import traceback
from contextlib import suppress
from typing import BinaryIO

LENGTH = 4  # bytes of it


def main(orders: BinaryIO, failures: BinaryIO) -> None:
    while size := int.from_bytes(orders.read(LENGTH), "big"):
        data = orders.read(size)
        if len(data) == size and (why := _failure(data)):  # else the gateway was killed
            failures.write(why.encode() + b"\n")
            failures.flush()


def _failure(data: bytes) -> str:
    """Why it could not be written, in words that tell nothing of what is in it; "" if it is."""
    from gateway.server.recording import files, order  # noqa: PLC0415 - takes a while, and signals may come early

    try:
        files.write_file(order.unpacked(data))
    except OSError as error:
        return error.strerror or type(error).__name__
    except Exception as error:  # noqa: BLE001 - whatever it is, the next one may be sound
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__} in {frame.name}, line {frame.lineno}"
    return ""


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    with suppress(AttributeError):  # Windows has nothing like it
        os.nice(10)
    main(sys.stdin.buffer, sys.stdout.buffer)
