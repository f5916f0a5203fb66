"""The time of a pipeline on a Plan page, against its schedule worked through event by event."""

from __future__ import annotations

import json
import re


def _scheduled(work, microbatches):
    """The time of a 1F1B step on stages of so much work a microbatch, a third of it forward."""
    orders = []
    for stage in range(len(work)):
        ahead = min(len(work) - 1 - stage, microbatches)
        orders.append(["F"] * ahead + ["F", "B"] * (microbatches - ahead) + ["B"] * ahead)
    ended, clock, done = {}, [0.0] * len(work), [0] * len(work)
    while any(done[stage] < len(order) for stage, order in enumerate(orders)):
        for stage, order in enumerate(orders):
            while done[stage] < len(order):
                kind = order[done[stage]]
                at = order[: done[stage]].count(kind)
                before = ("F", stage - 1) if kind == "F" else ("B", stage + 1)
                is_first = before[1] in (-1, len(work))
                if not is_first and (*before, at) not in ended:
                    break
                clock[stage] = max(clock[stage], 0 if is_first else ended[*before, at])
                clock[stage] += work[stage] * (1 if kind == "F" else 2) / 3
                ended[kind, stage, at] = clock[stage]
                done[stage] += 1
    return max(clock)


def test_a_pipeline_takes_no_longer_than_its_schedule_and_hardly_less(built_site):
    """Twelve layers in eight stages, so the stages differ; the rate is that of an H100 in bf16."""
    grid = json.loads((built_site / "plans" / "plan_gpt2_124m.json").read_text())
    [row] = [
        one for one in grid["rows"]
        if one["strategy"] == "1f1b" and one["state"] == grid["rows"][0]["state"]
    ]  # fmt: skip
    first, inner, last = (rank["flops"] / row["num_microbatches"] for rank in row["ranks"])
    stages = [first, inner, inner, inner, inner / 2, inner / 2, inner / 2, last]
    assert row["state"]["devices"] == len(stages)
    scheduled = 1000 * _scheduled(stages, row["num_microbatches"]) / 989.5e12
    html = (built_site / "plan" / "gpt2_124m.html").read_text()
    shown = re.search(r'id="pp_1f1b_on_8".*?>([\d,.]+)\sms<', html, re.DOTALL)
    assert 0.95 * scheduled < float(shown[1]) < 1.003 * scheduled
