"""What a rank sends for the payloads of its operations, as expressions over a run."""

from runners.core.trace.records import Run

# Formulas of a ring; any other operation is a message to each peer.
OVER_A_RING = {"all_reduce", "all_gather", "reduce_scatter", "broadcast"}


def sent_bytes(path: str, run: Run, place: int) -> dict[str, str]:
    """By operation, what a rank sends in a step: in a ring, to a peer, or to and from a root.

    A broadcast passes around the ring too, and all ranks share its work.
    """
    rank, expressions = run.ranks[place], {}
    for c in rank.collectives:
        payload = f"{path}.ranks[{place}].collectives['{c.operation}'].bytes"
        is_root = any(rank.rank in (via.source, via.destination) for via in c.transfers)
        ring, share = (f"{law}_bytes({payload}, {path}.world_size)" for law in ("ring", "share"))
        sends = {
            "all_reduce": ring,
            "scatter": share if is_root else "",
            "gather": "" if is_root else payload,
            "send": payload,
            "recv": "",
            "barrier": "",
        }
        expressions[c.operation] = sends.get(c.operation, share)
    return {operation: how for operation, how in expressions.items() if how}
