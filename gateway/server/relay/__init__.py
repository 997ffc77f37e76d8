"""Relay one model request: its rounds and attempts, and the pipeline between the two sockets."""
