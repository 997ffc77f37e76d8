"""Pages in a real Chromium: `make test-browser`.

It is the system's own (`apt-get install chromium`), or the one that CHROMIUM names.
"""
