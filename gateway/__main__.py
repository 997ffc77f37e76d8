"""`python -m gateway` is `gateway`."""

from gateway.cli.main import main

main()
