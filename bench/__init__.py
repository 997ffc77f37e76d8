"""What the gateway costs: `python -m bench` prints one table.  README.md says how to read it."""
