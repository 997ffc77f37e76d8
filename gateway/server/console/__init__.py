"""What people look at to see how the gateway does: a document, and what is made of it for a browser or a terminal.

document   what there is to see                                    ← start here
overview   the document as it is now
page       pages, and what a browser may do with them
assets     what pages fetch; templates: what they are made of
tables     the document at a terminal
exchanges  single requests, step by step
replaying  one of them in another format
top        the same, as long as somebody looks
"""
