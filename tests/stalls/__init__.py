"""How long one request can keep the gateway from all others: hostile bodies and answers, and the longest stall of each.

`bodies`: what a client sends, as data · `answers`: what a backend sends · `gateway`: a process that watches its own event
loop · `__main__`: the table.
"""
