"""What the traces say: expressions, values with unit and origin, claims and their verdicts.

In: a `Book`. Out: an `Evidence`, which gives a `Value` for an expression and an `Judged` for a
claim, on the machine shown and on every other. It knows no page.
"""
