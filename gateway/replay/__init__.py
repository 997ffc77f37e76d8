"""Play recordings back: to today's gateway, or to any client.

script     what the backends of a recording said, ready to be said again   ← start here
player     a model server that says it
driving    a gateway in front of that, which is asked as the recorded one was
meaning    what came of it, as far as it matters
command    files in, a report out
"""
