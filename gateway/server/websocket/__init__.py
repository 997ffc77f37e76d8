"""/v1/responses over a WebSocket: each response is answered as over HTTP, and its events are messages.

Reading order:

    entrance     admission of connections                                    ← start here
    sockets      all connections of a process
    connection   one of them: what comes in, what goes out, how it ends
    incoming     what a client may say
    lanes        what runs at once, and what waits for what
    answering    one response on its way
    recent       responses that are not stored, as long as their connection lasts
"""
