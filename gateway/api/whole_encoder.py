"""Share what all encoders of a whole body do: they send nothing before the end of the response."""


class WholeEncoder:
    """The base of the encoders that return all bytes at the end."""

    def start(self) -> bytes:
        """Return no bytes: the body goes out at the end."""
        return b""

    def keep_alive(self) -> bytes:
        """Return no bytes: a whole body has no keep-alive."""
        return b""
