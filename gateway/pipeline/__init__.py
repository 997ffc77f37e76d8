"""Convert the bytes of the upstream to bytes for the client, over all rounds of a response.  Pure.

pipeline           one response: rounds, actions, encoder                        ← start here
upstream_reader    one round: bytes to normalized events
normalizer         the guarantees of the event order, one Finish per choice
choice             one choice: text parser, tool calls, finish reason
choice_output      the output of that parser as events; joined texts, aligned log-probabilities
structured_calls   tool calls that the backend sends as calls, in order
tool_calls         numbers, ids and validation of all tool calls
prefill            a response that continues the client's last message
format_mismatch    tool calls in another format than the one that was read
empty_round        rounds without content, held back for a retry
fan_out            several rounds of one choice each, merged
"""
