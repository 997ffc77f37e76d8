"""Convert the bytes of a local model server to the bytes that an OpenAI client expects.

Reading order, the path of one chunk (docs/explanation/architecture.md has it step by step):

    events              the events of a model's output                                   ← start here
    sse                 bytes → payloads
    backends            payload → raw events; request → upstream body.  kinds/ has a row for each kind of server
    formats             text → reasoning and tool calls: reader.py is the only code that touches a text buffer,
                        markup.py the loop that all families share, grammars/ the parsers of tool calls, families/ a
                        row for each format
    pipeline            upstream bytes → client bytes, over all rounds of a response: one order, one open call, one end
    transforms          filters for what a backend cannot do
    api                 body → request; events → chunks, response.* events or one body
    builtin_tools       tools that run at the gateway
    request, errors, warnings, code_texts, config
                        the vocabulary that all share
    recording           the steps of one request, as a file
    routing             choice of backends, retries and queues
    lazy_module         modules that are imported at their first use
    installation        the command that adds packages to this environment
    doctor              test requests that find out what a server can do
    store               stored responses, conversations, jobs and counts
    server              sockets, clock and processes: the only code that waits
    replay              recordings played back, to a gateway or to any client
    cli                 the commands

All but installation, store, demo, server, replay and cli are pure and synchronous: ids and times are arguments.
"""

__version__ = "0.2.0"
