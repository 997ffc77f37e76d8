"""Show the state of the gateway to people: one document, as pages for a browser and as tables for a terminal.

document   what there is to see                                    ← start here
overview   the document as it is now
page       pages, and what a browser may do with them
assets     what pages fetch; templates: what they are made of
tables     the document at a terminal
exchanges  single requests, step by step
replaying  one of them in another format
top        the same, while it is watched
"""
