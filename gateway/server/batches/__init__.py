"""Run batches: each line is a request to this gateway, for the owner of the batch.

Reading order:

    batch_run           one batch in one process: check, send lines, write files  ← start here
    batch_manager       all batches of a process: claim, hold, stop
"""
