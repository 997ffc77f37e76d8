"""Measure the cost of the gateway: `python -m bench` prints one table, which README.md explains."""
