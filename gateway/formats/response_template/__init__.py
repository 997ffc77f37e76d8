"""Compile the response template of a model (docs/reference/response-template.md) to a format."""
