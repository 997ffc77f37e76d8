"""Two gateways on one PostgreSQL behind a real HAProxy, whose configuration is the one in deploy/: `make test-pg`.

Nothing in them is made quick: a dead gateway's work is taken over as late as ever.
"""
