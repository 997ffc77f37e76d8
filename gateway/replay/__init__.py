"""Replay recordings: through the current gateway, or to any client.

mock_backend   a model server that plays the responses of backends     ← start here
runner         a gateway in front of it, and the recorded request
outcome        the result of a request, in a comparable form
"""
