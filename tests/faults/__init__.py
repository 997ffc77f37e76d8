"""The fault matrix: what backends, clients and the machine do wrong, and what comes of it, on real sockets.

`rows`: what a backend does wrong, as data · `clients`: what a client does · `life`: what happens to the gateway's process ·
`ways`: how an answer is asked for and read · `upstream`: the backend · `matrix`: runs a row ·
`memory`: what of it is still there · `page`: the table.
"""
