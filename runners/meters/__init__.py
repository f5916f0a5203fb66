"""Meters of a metered pass: memory, collectives, links and time.

In: the operations of one step. Out: records of a trace.
"""
