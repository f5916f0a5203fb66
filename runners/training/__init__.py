"""What experiments share: data from a seed, networks, and a step of training.

In: a rank and the settings of its run. Out: tensors and modules on the rank's device.
"""
