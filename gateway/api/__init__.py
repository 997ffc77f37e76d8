"""Serve the APIs: parse a body into a neutral request, and encode events or a backend's response for the client."""
