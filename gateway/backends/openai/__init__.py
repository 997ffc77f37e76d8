"""Speak the dialect of OpenAI with backends: request bodies, decoder, errors."""
