"""What holds for which engine, model and client, as data, and as the page that docs/reference/conformance.md is.

    PYTHONPATH=tests python -m conformance [PART…]        or: make conformance ARGS="wire"

Each part is run from what is there for the tests, and its results go to results/PART.json: the date of the run, the versions, and

    recordings   of each recorded server, how many of its answers come to what they have to: [right, all]
    wire         of each server, its settings, and the outcome of each case of wire/ by the feature it belongs to
    engines      the same of vLLM and transformers
    clients      of each client, on each model, its checks

plugin.py has the words for outcomes.  The page is rendered from the results alone.
"""
