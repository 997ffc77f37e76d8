"""Play recordings back: to today's gateway, or to any client.

mock_backend   a model server that plays what backends sent           ← start here
runner         a gateway in front of it, which is asked as the recorded one was
outcome        the result of a request, in a comparable form
"""
