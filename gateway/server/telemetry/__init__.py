"""Observe requests: numbers for /metrics, and a line each in the log.

observation  what is known of one request                          ← start here
metrics      the numbers that there are
tally        what they are in one process, and in several
counting     an observation as numbers, and the backends as they are now
line         an observation as a line of the log
sight        what one worker sees: requests of now and of a while ago, backends
rates        how much is done in a second, by these
recent       the requests of one process, as long as they are remembered
shared       the tallies of other workers, and the folder that they are in
telemetry    all of it in one process
exposition   numbers as Prometheus reads them
"""
