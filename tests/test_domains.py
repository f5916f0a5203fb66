"""Laws say where they hold: none claims of an accelerator what only the CPU's arithmetic gives."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from runners.plans.experiment import find

RUN = re.compile(r"\b([a-z_]+)\.([a-z0-9_]+)\.(?=ranks|prediction|epochs|step_losses|validation)")
# Equal only where every rank, or every run, adds in the same order.
SUMMED = re.compile(
    r"\.parameter_digest|gradient_digest|text_digest|num_distinct$|largest_difference"
)
PEAK = re.compile(r"memory\.(peak_bytes|at_peak)")
DROPOUT = "replicas"  # its masks are drawn on the CPU, from a seed


def laws() -> list[dict[str, Any]]:
    """The laws of the book as their authors wrote them."""
    files = sorted(Path("content/claims").glob("*.yml"))
    claims = [claim for file in files for claim in yaml.safe_load(file.read_text())["claims"]]
    return [claim for claim in claims if claim["kind"] == "law" and claim["relation"] == "equals"]


def can_run_on_an_accelerator(law: dict[str, Any]) -> bool:
    """Whether a run that a law observes leaves the CPU where there is an accelerator."""
    runs = RUN.findall(law["observed"])
    return any(not find(experiment).runs[run].only_on_cpu for experiment, run in runs)


def names_no_domain(pattern: re.Pattern[str]) -> list[str]:
    return [
        law["id"]
        for law in laws()
        if "domain" not in law
        and pattern.search(law["observed"])
        and not law["observed"].startswith(f"{DROPOUT}.")
        and not law["predicted"].endswith(".world_size")  # that all ranks differ
        and can_run_on_an_accelerator(law)
    ]


@pytest.mark.parametrize("pattern", [SUMMED, PEAK], ids=["equal to the bit", "peaks"])
def test_a_law_that_an_accelerator_may_break_names_its_domain(pattern: re.Pattern[str]) -> None:
    assert names_no_domain(pattern) == []
