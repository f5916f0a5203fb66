"""Each matrix has an owner that computes its update: by turns, by bytes or by operations.

torchrun --nproc-per-node 1 owners_of_matrices.py
"""

RANKS, LAYERS, WIDTH, KEYS, HIDDEN, EXPERTS, STEPS = 8, 6, 4096, 1024, 1024, 8, 5


def operations(rows, columns):
    """Of Newton and Schulz: two products with the long side and one without, in each step."""
    short, long = sorted((rows, columns))
    return STEPS * (4 * short**2 * long + 2 * short**3)


def numbers(rows, columns):
    return rows * columns


def by_turns(ranks):
    return [shapes[rank::ranks] for rank in range(ranks)]


def by_size(ranks, size):
    """The largest first, each to the rank that has the least."""
    owned = [[] for _ in range(ranks)]
    for shape in sorted(shapes, key=lambda one: size(*one), reverse=True):
        min(owned, key=lambda some: sum(size(*one) for one in some)).append(shape)
    return owned


attention = [(WIDTH, WIDTH)] * 2 + [(KEYS, WIDTH)] * 2
shapes = (attention + [(HIDDEN, WIDTH)] * 3 * EXPERTS) * LAYERS
facts = {}
for ranks in (RANKS, 8 * RANKS):
    ways = {"turns": by_turns(ranks), "bytes": by_size(ranks, numbers)}
    ways["operations"] = by_size(ranks, operations)
    for way, owned in ways.items():
        for unit, size in {"operations": operations, "bytes": numbers}.items():
            loads = [sum(size(*one) for one in some) for some in owned]
            facts[f"{way}_{unit}_{ranks}"] = max(loads) * ranks / sum(loads)
        busiest, largest = facts[f"{way}_operations_{ranks}"], facts[f"{way}_bytes_{ranks}"]
        print(f"{ranks:>2} ranks, by {way:>10}: most / mean {busiest:.2f}, of bytes {largest:.2f}")
report = [facts]
