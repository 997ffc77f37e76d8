"""Serve /v1/responses over a WebSocket: each response runs as over HTTP, and its events are messages.

Reading order:

    endpoint           admission of connections, and all connections of a process     ← start here
    connection         one of them: messages in, messages out, its end
    messages           the messages of clients, and those to them
    stream_scheduler   which requests of a connection run, and which wait
    response_task      one response that runs
    recent_responses   responses that are not stored, while their connection lasts
"""
