"""Serve the APIs besides text generation: each in its own module, from a client's body to its response.

One request to the backend answers one request of a client.  Both have one JSON body.
"""
