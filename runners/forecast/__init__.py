"""What each run will need, said before it runs.

In: the machine's primitives, measured as an experiment is, and the work that plans declare. Out:
`prediction.json`.
"""
