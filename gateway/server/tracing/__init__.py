"""Traces of requests, by the semantic conventions of OpenTelemetry for HTTP and generative AI.

trace      when what happened to one request, and its place in a trace of others   ← start here
tracer     which requests have one, and where they go
spans      a trace as spans, in the words of the conventions
export     spans to OpenTelemetry's own exporter, whose packages are an extra
"""
