"""Stand-in until the rows are merged."""


def range_of(*_):
    return None
