"""Serve the APIs: parse a body into a neutral request, and encode events or a backend's answer as the response."""
