"""The mean of the gradients that the ranks found."""


def mean(gradients, world_size):
    total = sum(gradients)
    return total / world_size


print(mean([1.0, 2.0], world_size=2))
