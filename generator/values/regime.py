"""The regime of a claim: under which conditions its runs were measured.

In: a claim and its runs. Out: a Line such as "GPipe and 1F1B over four ranks (more than cores);
gloo on cpu; float32; SGD; fixed: the global batch". Strategy, ranks, backend, device, nature and,
where a run's settings have them, dtype and optimizer are read off the runs; the rest stands in the
claim's file.
"""

from collections.abc import Callable, Iterable, Mapping

from proofbook.generator.content.claim import Claim
from proofbook.runners.core.trace.records import Run

_OF_BYTES = {8: "float64", 4: "float32", 2: "bfloat16"}
_OPTIMIZERS = {"sgd": "SGD", "adam": "Adam"}
CROWDED = "oversubscribed"  # the word behind a time of ranks that took turns
SPELLED = {2: "two", 3: "three", 4: "four", 8: "eight"}


def dtype_of(run: Run) -> str | None:
    """The dtype that a run has recorded: its setting, its model's, or that of its values' bytes."""
    own = run.settings.get("dtype") or (run.model.dtype if run.model else None)
    if isinstance(own, str):
        return own.removeprefix("torch.")
    return _OF_BYTES.get(run.settings.get("bytes_per_value"))  # type: ignore[arg-type]


def optimizer_of(run: Run) -> str | None:
    """The optimizer that a run's settings name, by the name that readers know."""
    own = run.settings.get("optimizer")
    return _OPTIMIZERS.get(own, own) if isinstance(own, str) else None


def is_crowded(run: Run) -> bool:
    """Whether ranks took turns on the cores, so that times tell of the turns and not of a device.

    The stages of a paced run last as long as they were told, and overlap all the same.
    """
    return run.nature == "real" and run.timing.oversubscribed


def line(
    claim: Claim, runs: Mapping[str, Run], strategy: Callable[[Run], str], has_turns: bool = True
) -> str:
    """A claim's regime (strategies, ranks, device, dtype) as text; empty if no run was measured.

    `strategy` gives the name that readers know a run's strategy by, and `has_turns` is whether it
    says that ranks took turns, in which machines differ.
    """
    measured = {
        name: run for name, run in runs.items()
        if run.strategy != "published" and run.status != "skipped"  # published: by others
    }  # fmt: skip
    of_all, stated = measured.values(), claim.regime
    kinds: dict[tuple[str, int, bool, str], str] = {}
    for name, run in measured.items():
        takes_turns = has_turns and is_crowded(run)
        kinds.setdefault((strategy(run), num_ranks(run), takes_turns, run.nature), name)
    placed = [run for run in of_all if run.nature != "simulated"]  # others are about no device
    places = {run.device for run in placed if run.world_size > 1}
    optimizers = (optimizer_of(run) or stated.optimizer for run in of_all)
    parts = [
        _together((kind[0], _ranks(name, runs[name], kind[2])) for kind, name in kinds.items()),
        _joined(
            f"{run.backend} on {run.device}" if run.world_size > 1 else run.device
            for run in placed
            if run.world_size > 1 or run.device not in places
        ),
        *sorted({run.nature for run in of_all} - {"real"}),
        _joined(dtype for run in of_all if (dtype := dtype_of(run) or stated.dtype)),
        _joined(optimizer for optimizer in optimizers if optimizer and optimizer != "none"),
        f"fixed: {stated.fixed}" if stated.fixed else "",
    ]
    return "; ".join(filter(None, parts)) if measured else ""


def num_ranks(run: Run) -> int:
    """How many ranks took part: a launcher or a simulation is one process, and knows of more."""
    own = run.settings.get("num_ranks") if run.strategy != "single" else None
    return own if run.world_size == 1 and isinstance(own, int) else run.world_size


def _ranks(name: str, run: Run, takes_turns: bool) -> str:
    """Over how many ranks a run went, in a word, or as the run's own setting where it has none.

    Nothing of a run whose name says that it had one device.
    """
    num = num_ranks(run)
    if run.is_plain:
        return ""
    if num == 1:
        return "" if run.strategy == "single" else "on one rank"
    field = "world_size" if run.world_size > 1 else "settings.num_ranks"
    words = SPELLED.get(num, f"{{{{ {name}.{field} }}}}")
    if run.nature == "simulated":
        return f"on one of {words} ranks"
    places = "accelerators" if run.device == "cuda" else "cores"
    crowd = f" (more than {places})" if takes_turns else ""
    return f"over {words} ranks{crowd}"


def _together(kinds: Iterable[tuple[str, str]]) -> str:
    """Strategies with their ranks; what several share stands once."""
    by_ranks: dict[str, list[str]] = {}
    for strategy, ranks in kinds:
        by_ranks.setdefault(ranks, []).append(strategy)
    by_names: dict[str, list[str]] = {}
    for ranks, strategies in by_ranks.items():
        by_names.setdefault(_joined(strategies), []).append(ranks)
    phrases = [f"{names} {_joined(ranks)}".rstrip() for names, ranks in by_names.items()]
    has_lists = any(" and " in phrase for phrase in phrases)
    return (", and " if has_lists else " and ").join(phrases)


def _joined(parts: Iterable[str]) -> str:
    """Different parts, each once, as a list in a sentence; runs of one kind differ in settings."""
    *before, last = dict.fromkeys(parts) or [""]
    return f"{', '.join(before)} and {last}" if before else last
