"""Run responses that outlive the connection of their client.

A *job* runs a response as if it were the client, and never disconnects.  It writes the events to a log, which
subscribers follow from any process.  Reading order:

    job             one background response                                       ← start here
    log_writer      writes the logs of all jobs of a process together
    log_tail        the newest rows of a log, and the events for a subscriber
    job_responses   the HTTP responses for the client of a job
    job_manager     all jobs of a process: start, hold, cancel, end; and the logs of jobs of other processes
    recovery        jobs whose process has died
"""
