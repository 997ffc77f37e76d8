"""Fetch the URLs that clients and models name, from public addresses only."""
