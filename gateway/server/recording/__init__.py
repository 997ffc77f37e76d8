"""Requests written down as they are answered.

tape       writes down one                                         ← start here
recorder   which ones are, and those of late
files      the folder that they go to
"""
