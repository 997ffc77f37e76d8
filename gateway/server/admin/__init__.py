"""Show the state of the gateway to operators: one document, as pages for a browser and as tables for a terminal.

overview_model   the types of the document                            ← start here
overview         the current document
inspector        single requests, step by step, and their replay
routes           the pages and their JSON; assets/ and templates/ are beside it
"""
