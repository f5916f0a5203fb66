"""Shows that a half is smaller than the whole."""


def halve(num_bytes):
    return num_bytes // 2


print(halve(80_000))
