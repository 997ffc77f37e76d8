"""The gateway beside others, in front of the same mock: `python -m bench.peers` prints one table."""
