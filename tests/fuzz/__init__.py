"""Any bytes at all, where bytes come from outside: what must hold of them, and fuzzers that look for those of which it does not.

target.py    what a target is: a check of bytes, texts to begin with, and words
mutation.py  a text with one value of its JSON changed
framing.py, decoding.py, text.py, requests.py, websocket.py, configuration.py    the targets
targets.py   all of them by their names
one.py       atheris at work on one target, in a process of its own
run.py       runs that process, and reads what it found
"""
