"""What this machine computes and communicates in how long, measured by itself.

Out: `primitives.json` of the machine's folder.
"""
