"""Wrap all requests: request ids, authentication, origin checks, idempotency, limits and error responses."""
