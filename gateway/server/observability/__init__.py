"""Observe requests: metrics, access log, traces and recordings.

request_record     all that is known of one request                      ← start here
telemetry          all telemetry of one process, with its recent requests and the minutes of the last hour
metrics            the definitions of the metrics
metric_values      records and backends as metric values, shared between workers
minute_counts      the counts of one minute, which add up over workers
usage              usage by key, model and day: on its way to the store, and as a document
snapshot           the current and recent requests and backends of a worker
logs               the log of a process, its formats and its request ids
access_log         the entry of each request
terminal_log       the log for a person at a terminal
trace_context      the trace of one request
tracer             the requests that are traced
spans              a trace as spans of OpenTelemetry's conventions
otlp_exporter      the export, whose packages are an extra
recorder           the requests that are recorded
request_recorder   the recording of one request
recording_writer   a child program that writes the files
"""
