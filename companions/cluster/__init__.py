"""Several nodes: torchrun on each of them, and the processes of all connected with each other.

In: torchrun's options and the names of runs. Out: the same traces as on one machine.
"""
