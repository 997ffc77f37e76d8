"""From a local model server's bytes to an OpenAI client's bytes.

Reading order, the way of one chunk:

    events              what a model can say                                          ← start here
    framing             bytes → payloads
    backends/openai     payload → raw events; request → upstream body
    formats             text → thoughts and calls: reader.py is the only code that touches a text buffer, markup.py the
                        loop that all families share, families/ a row for each, and beside them the grammars of calls
    choice, calls       one order, one open call, one end
    normaliser          one promise for all choices
    translate           filters for what a backend cannot do
    upstream            these together: bytes → promised events
    fan                 several of these as the choices of one answer
    endpoints/chat      body → request; events → chunks, or one body
    endpoints/responses the same for the API of items: body → request; events → response.* events, or one Response
    endpoints/completions
                        the same for a text that is to be completed
    services            what is no text at all: embeddings, ranks, tokens
    documents, images   files in a request, as text; images that have to be sent themselves
    shortening          a prompt that is too long, shorter
    compaction          a conversation that a summary takes the place of
    recollection        reasoning that a client did not send back, put in again
    hosted              tools that run at the gateway: what the model says of them, what the client is told
    recording           what happened to one request, as a file
    turn                upstream and endpoint together: bytes → bytes
    routing             choice of backends, retries and queues
    store               what lasts: responses, conversations, and all else that is looked up later
    server              sockets, clock, processes: the only code that waits
    replay              recordings played back, to a gateway or to any client

All but the last three are pure and synchronous: ids and times are arguments.
"""

__version__ = "0.1.0"
