"""What models do besides writing: each question in a module of its own, from a client's body to a client's answer.

One request of a backend answers one of a client, in one JSON body each.
"""
