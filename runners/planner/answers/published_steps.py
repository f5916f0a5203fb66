"""Published steps beside their bounds: does each take at least as long? No torch.

In: the rows of `published_rates.yml`. Out: `plan_steps`, a run for each device with the number of
its published steps, and of those that took at least the bound.
"""

from collections import defaultdict
from collections.abc import Sequence

from proofbook.runners.core.trace.records import Run
from proofbook.runners.core.trace.schema import Setting
from proofbook.runners.planner.answers import closed_form
from proofbook.runners.planner.answers.published import run, run_name
from proofbook.runners.planner.answers.published_rows import RATES, PublishedRow, rows


def runs() -> dict[str, Run]:
    """A run for each device, by name."""
    devices = defaultdict[str, list[PublishedRow]](list)
    for row in rows(RATES):
        if row.seconds is not None:
            devices[row.device.name].append(row)
    return {run_name(name): _device(of) for name, of in devices.items()}


def _device(of: Sequence[PublishedRow]) -> Run:
    least = [closed_form.answer(row.question).bounds(row.cluster).at_least for row in of]
    possible = [a <= (row.seconds or 0) for a, row in zip(least, of, strict=True)]
    measures: dict[str, Setting] = {"num_rows": len(of), "num_possible": sum(possible)}
    return run({"device": of[0].device.name}, measures)
