"""Find out by test requests which features a server has.  Pure: the requests and responses are arguments.

Reading order:

    lessons     conversations that lead a model to calls and thoughts
    questions   what is asked, and its body
    heard       the bytes of an answer → what was said
    reading     texts → the family of formats that they are of
    findings    all that was heard of one model; what a verdict is
    probes      the verdicts, a row each: judged in answers and calls, with judging and advice
    report      the verdicts as a table, and as data
    settings    the same as a configuration

gateway/server/examining.py asks, gateway/server/doctor.py is the command.
"""
