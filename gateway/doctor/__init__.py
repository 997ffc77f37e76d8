"""Find out by test requests which features a server has.  Pure: the requests and responses are arguments.

Reading order:

    probe_requests   the requests, and the conversations that lead a model to tool calls and reasoning
    probe_response   the bytes of a response → its parts
    findings         the results for one model, and the format family of its texts
    checks           the verdicts, a row each, and their checks
    verdicts         findings → verdicts, with advice
    report           the verdicts as a table and as JSON
    config_merge     the findings as a configuration

gateway/cli/doctor_runner.py sends the requests, gateway/cli/doctor.py is the command.
"""
