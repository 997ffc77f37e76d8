"""Show the state of the gateway to operators: one document, as pages for a browser and as tables for a terminal.

overview_model   the types of the document                            ← start here
overview         the current document, with the state of each backend in words
first_run        what to paste into clients before the first request
api_docs         the description of the API as a page
hour             the last hour in it, and its small charts
exchange_list    the requests of all workers, filtered
exchange         all that is known of one request, and what its warnings are about
exchange_times   its attempts and the parts of its output
exchange_failure why it failed
conversation     its messages and tools
recording_files  the requests that are kept on disk
inspector        the steps of single requests, and their replay
keys             the API keys of the store
usage            what keys and models used
routes           the pages and their JSON; assets/ and templates/ are beside it
"""
