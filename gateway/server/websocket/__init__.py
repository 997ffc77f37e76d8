"""Serve /v1/responses over a WebSocket: each response runs as over HTTP, and its events are messages.

Reading order:

    endpoint           admission of connections, and all connections of a process     ← start here
    connection         one connection: incoming and outgoing messages, which requests run and which wait, and its end
    messages           parsing and building of messages
    response_task      one running response
    recent_responses   responses that are not stored, while their connection lasts
"""
