"""Compile the response template of a model (docs/response_template.md) to a format."""
