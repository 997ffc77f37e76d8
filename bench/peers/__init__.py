"""Compare the gateway with other programs in front of the same mock: `python -m bench.peers` prints one table."""
