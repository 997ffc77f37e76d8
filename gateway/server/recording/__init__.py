"""Requests written down as they are answered.

tape       writes down one                                         ← start here
recorder   which ones are, and those of late
writer     the process that writes them
order      one, on its way to that process
writing    the program that this runs
files      the folder that they go to
"""
