"""How fast this machine computes and communicates, measured by itself.

Out: `primitives.json` of the machine's folder.
"""
