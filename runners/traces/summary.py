"""The summary of a measured run in lines for a person. Pure; no torch.

In: a `Run`. Out: lines. `python -m runners try` prints them of a run just measured, and the pages
show them of the recorded one, so that a reader sees the same lines in both places.
"""

from collections.abc import Callable, Iterator
from functools import partial

from proofbook.runners.core.trace.fields import (
    NBSP,
    SIZES,
    TIMES,
    in_words,
    quantity,
    scaled,
    significant,
)
from proofbook.runners.core.trace.records import RankRecord, Run
from proofbook.runners.core.trace.schema import Setting


def how_it_ended(run: Run) -> str:
    """The end of a run in words, with phase, rank and cause where it failed."""
    words, error = run.status.replace("_", " "), run.error
    if run.status == "skipped":
        return f"skipped: {run.reason}"
    if error is None:
        return words
    size = f", asking for {error.requested_bytes:,} bytes" if error.requested_bytes else ""
    cause = "" if error.kind == "out_of_memory" else f": {error.message}"
    place = "" if error.rank is None or run.is_plain else f" on rank {error.rank}"
    place += f" at {error.line}" if error.line else ""
    return f"{words} in {error.phase}{place}{size}{cause}"


def how_it_was_meant_to_end(run: Run) -> str:
    """The declared end of a run in words; of a death also which rank, where, and by what."""
    words, death = run.expected_status.replace("_", " "), run.expected_death
    if death is None:
        return words
    by = death.signal or f"exit code {death.exit_code}"
    return f"{words} in {death.phase} on rank {death.rank}: {by}"


def summary_lines(run: Run) -> list[str]:
    """Lines of text: a run's end, its program's output, loss, memory, payload, times, measures."""
    printed = [f"  {line}" for line in run.printed]
    return [
        f"ended: {how_it_ended(run)}",
        *([f"printed{'' if run.is_plain else ' by rank 0'}:", *printed] if printed else []),
        *_learnt(run),
        *_by_rank("peak memory", run, lambda rank: _peak(run, rank)),
        *_by_rank("payload of a step", run, _payload),
        *_times(run),
        *_own(run),
    ]


def beside(run: Run, book: Run) -> list[str]:
    """The summary of a run, then the lines in which the summary of the book's run differs."""
    own = summary_lines(run)
    others = [line for line in summary_lines(book) if line not in own and line[0] != " "]
    return [*own, *(f"in the book: {line}" for line in others)]


def _own(run: Run) -> Iterator[str]:
    """The measures of a run; of a run without other results, the facts of its prediction."""
    names = dict.fromkeys(name for rank in run.ranks for name in rank.measures)
    for name in names:
        yield from _by_rank(name, run, partial(_measured, name, run))
    steps = [] if names or run.printed or run.epochs else run.prediction
    for step in (step for step in steps if step.facts):
        rank = "" if step.rank is None else f", rank {step.rank}"
        facts = (
            f"{name} {_in_words(fact, quantity([name]).unit)}" for name, fact in step.facts.items()
        )
        yield f"{step.name}{rank}: {', '.join(facts)}"


def _measured(name: str, run: Run, rank: RankRecord) -> str | None:
    unit = quantity(["measures", name], run.quantities).unit
    return _in_words(rank.measures[name], unit) if name in rank.measures else None


def _in_words(value: Setting, unit: str) -> str:
    if isinstance(value, list):
        return ", ".join(_in_words(element, unit) for element in value)
    words = significant(value, 4) if isinstance(value, float) else in_words(value, unit)
    return words.replace(NBSP, " ")


def _learnt(run: Run) -> Iterator[str]:
    losses = [(epoch.loss, epoch.epoch) for epoch in run.epochs if epoch.loss is not None]
    if losses:
        (first, begin), (last, end) = losses[0], losses[-1]
        start = f"{first:.4f} in epoch {begin}, " if len(losses) > 1 else ""
        yield f"loss: {start}{last:.4f} in epoch {end}"
    if run.epochs and (accuracy := run.epochs[-1].accuracy) is not None:
        yield f"accuracy in training: {100 * accuracy:.1f}%"
    last_check = run.validation
    if last_check is not None and last_check.accuracy is not None:
        share = f"{100 * last_check.accuracy:.1f}%"
        yield f"accuracy on {last_check.num_samples:,} samples never trained on: {share}"
    for odd in run.non_finite[:1]:
        yield f"not finite: {odd.field} was {odd.kind} in step {odd.step}"


def _by_rank(what: str, run: Run, words_of: Callable[[RankRecord], str | None]) -> Iterator[str]:
    """A line for each group of ranks whose words are equal."""
    ranks_by_words: dict[str, list[str]] = {}
    for rank in run.ranks:
        if (words := words_of(rank)) is not None:
            ranks_by_words.setdefault(words, []).append(str(rank.rank))
    for words, (*most, last) in ranks_by_words.items():
        if run.is_plain:
            yield f"{what}: {words}"
            continue
        ranks = f"ranks {', '.join(most)} and {last}" if most else f"rank {last}"
        yield f"{what}, {ranks}: {words}"


def _peak(run: Run, rank: RankRecord) -> str | None:
    memory = rank.memory
    if memory is not None and memory.peak_bytes is not None:
        words = f"{bytes_in_words(memory.peak_bytes)} in {memory.peak_phase}"
    elif memory is not None and memory.kernel_peak_bytes is not None:
        words = f"{bytes_in_words(memory.kernel_peak_bytes)} resident, code included"
    else:
        return None
    if run.budget_bytes is None:
        return words
    return f"{words}; {bytes_in_words(run.budget_bytes)} of data allowed"


def _payload(rank: RankRecord) -> str | None:
    calls = [
        f"{c.operation} {bytes_in_words(c.bytes)} in {c.count} call{'s' if c.count > 1 else ''}"
        for c in rank.collectives
    ]
    return ", ".join(calls) or None


def _times(run: Run) -> Iterator[str]:
    """The time of a step; of a run without steps, of each part that it timed."""
    step = run.timing.step
    places = "accelerators" if run.device == "cuda" else "cores"
    crowd = f"; more ranks than {places}" if run.timing.oversubscribed else ""
    for name, times in ({"step": step} if step else run.timing.measures).items():
        median = seconds_in_words(times.median_seconds)
        low = seconds_in_words(times.first_quartile_seconds)
        high = seconds_in_words(times.third_quartile_seconds)
        if times.num_samples == 1:
            yield f"{name}: {median}, measured once{crowd}"
        else:
            measured = f"median {median} of {times.num_samples} measurements"
            yield f"{name}: {measured}, quartiles {low} and {high}{crowd}"


def bytes_in_words(number: float) -> str:
    """Bytes in the largest unit of which there is one, to three digits."""
    return scaled(number, SIZES).replace(NBSP, " ")


def seconds_in_words(seconds: float) -> str:
    """Seconds in their unit, to three digits; below 0 of a clock that is behind."""
    return ("−" if seconds < 0 else "") + scaled(abs(seconds), TIMES).replace(NBSP, " ")
