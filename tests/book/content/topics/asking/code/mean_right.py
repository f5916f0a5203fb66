"""A mean over the ranks, for a question about its fault."""


def averaged(gradients, world_size):
    """The gradient that every rank applies."""
    total = sum(gradients)

    if world_size > 1:
        return total / world_size
    return total
