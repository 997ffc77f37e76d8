"""A terminal for programs that behave differently at one."""

import fcntl
import os
import pty
import select
import struct
import termios


class PseudoTerminal:
    """A pseudo-terminal.

    theirs: the file descriptor for the program.
    output: what the program wrote.
    """

    def __init__(self, rows=50, columns=160):
        self.ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.theirs = theirs
        self.output = b""

    def read_until(self, text):
        """Read until the program has written this text."""
        while text not in self.output:
            assert select.select([self.ours], [], [], 30)[0], self.output
            self.output += os.read(self.ours, 65536)

    def press(self, key):
        """Type a key."""
        os.write(self.ours, key)

    def hang_up(self):
        """Close the window of the terminal."""
        if self.ours is not None:
            os.close(self.ours)
            self.ours = None

    def close(self):
        """Close both ends."""
        self.hang_up()
        os.close(self.theirs)
