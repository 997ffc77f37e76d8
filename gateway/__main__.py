"""`python -m gateway` is `gateway`."""

from gateway.cli import main

main()
