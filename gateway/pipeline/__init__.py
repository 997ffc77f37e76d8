"""Convert the bytes of the upstream to bytes for the client, over all rounds of a response.  Pure.

pipeline           one response: rounds, actions, encoder                        ← start here
upstream_reader    one round: bytes to normalized events
normalizer         the guarantees of the event order, one Finish per choice
choice             one choice: text parser, tool calls, finish reason
structured_calls   tool calls that the backend sends as calls, in order
tool_calls         numbers, ids and validation of all tool calls
logprobs           log-probabilities beside the text that they belong to
prefill            a response that continues the client's last message
text_pieces        pieces of a text that follow each other, joined
format_mismatch    calls in another format than the one that was read
fan_out            several rounds of one choice each, merged
"""
