"""From a local model server's bytes to an OpenAI client's bytes."""

__version__ = "0.1.0"
