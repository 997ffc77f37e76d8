"""Replay recordings: through the current gateway, or to any client.

mock_backend   a model server that plays the responses of backends     ← start here
runner         a gateway in front of it, the recorded request, and its result in a comparable form
"""
