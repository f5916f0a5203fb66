"""The package of a wheel: the command `proofbook`, the judge, and links to what stands beside it.

So its parts have one name, in a clone and in a wheel: `proofbook.runners`, `proofbook.generator`.
"""
