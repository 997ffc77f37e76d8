"""Responses that outlive the connection of their client.

A *job* is the gateway's own client of an answer, and one that does not leave: what it is sent goes into a log, which
clients follow, from whichever process they have reached.  Reading order:

    job         one answer on its way                                         ← start here
    scribe      the logs of all jobs of a process, written together
    tail        the newest rows of a log, for its subscribers
    following   what a follower gets
    watch       the log of a job that is at home in another process
    jobs        all jobs of a process: starting, holding, cancelling, ending them
    takeover    jobs whose process has died
"""
