"""Serve the client's socket: requests in, responses out, disconnects, timeouts and TLS."""
