"""The soak: a gateway under a load of all sorts for long, watched from outside.

`mock`: the backend, a process · `load`: the clients · `watch`: what the gateway's processes take · `run`: one soak, and
what is wrong with it.
"""
