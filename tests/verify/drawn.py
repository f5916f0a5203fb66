"""Draws right programs from features, by seed."""

import random

AXES = (
    ("", "fsdp", "policy", "by_hand", "hsdp"),
    ("", "sgd", "two_optimizers"),
    ("", "clip", "clip_by_hand"),
    ("", "accumulate"),
    ("", "inside", "squares", "chunked", "smooth", "padded", "inside padded"),
    ("", "checkpoint", "reentrant"),
    ("", "autocast"),
)
FLAGS = ("tied", "frozen", "ema", "dropout", "scaler", "quiet")
# Where the first is, the others are left out: torch, or the program, does not combine them.
EXCLUDED = (
    ("accumulate", {"padded"}),
    ("by_hand", {"reentrant", "frozen"}),
    ("frozen", {"reentrant", "tied"}),
    ("scaler", {"clip_by_hand", "policy"}),
    *((kind, {"reentrant", "ema", "clip_by_hand"}) for kind in ("fsdp", "policy", "hsdp")),
)


def drawn(seed, ranks):
    """The features of a right program."""
    source = random.Random(seed)
    words = {word for axis in AXES for word in source.choice(axis).split()}
    words |= {flag for flag in FLAGS if source.random() < 0.3}
    if ranks < 4:
        words.discard("hsdp")
    for word, others in EXCLUDED:
        words -= others if word in words else set()
    return sorted(words)
