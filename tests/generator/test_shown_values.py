"""The page of an experiment lists what other pages print of its runs, so that links show it."""

import html
import json
import re

import pytest

from generator.evidence import units
from generator.evidence.found_by import heading
from generator.evidence.value import Origin, Value
from generator.pages import rendering
from generator.pages.views.shown_values import largest_payload, payloads
from tests.popovers import popovers_of

LINK = re.compile(r'href="(?:\.\./)*evidence/(\w+)\.html#(?!claim-)([^"]+)" data-v="(\d+)">')
FOLD = re.compile(r'<summary>([^\n]*?)</summary><div [^>]*id="run-([^"]+)">(.*?)</details>')
WORDS = {
    "measured": "Measured",
    "counted": "Counted",
    "simulated": "Simulated",
    "from_measured": "Computed from measurements",
    "from_counted": "Computed from counts",
}


@pytest.fixture(scope="module")
def rendered(book):
    return rendering.render(book)


def text_of(markup):
    return html.unescape(re.sub(r"<[^>]+>", " ", markup)).replace("\N{NO-BREAK SPACE}", " ")


def folds(page):
    """By the run: what the fold says before it opens, and what it holds."""
    return {run: (text_of(says), text_of(held)) for says, run, held in FOLD.findall(page)}


def field(name, number=1, unit=units.BYTES, kind="measured"):
    return Value(
        number, unit, kind, f"study.one.{name}", origin=Origin("desk", "study", "one", name)
    )


def test_each_value_of_a_lesson_stands_in_the_fold_of_the_run_that_it_leads_to(rendered):
    found = 0
    for path, page in rendered.items():
        if path.startswith(("evidence", "machines/")):
            continue
        values = popovers_of(page)
        for experiment, run, number in LINK.findall(page):
            value = text_of(values[int(number)].shown)
            held = folds(rendered[f"evidence/{experiment}.md"])[f"{experiment}-{run}"][1]
            assert value in held, (path, value)
            found += 1
    assert found > 50


def test_the_row_of_a_run_has_its_payload_and_the_fold_each_collective(copy):
    trace = json.loads(copy.trace("tiny_training").read_text())
    of_ranks = [rank["collectives"] for rank in trace["runs"]["averaged"]["ranks"]]
    assert [[one["bytes"] for one in rank] for rank in of_ranks] == [[144], [144]]
    page = rendering.render(copy.load())["evidence/tiny_training.md"]
    row = text_of(page.partition("<code>averaged</code>")[2].partition("</tr>")[0])
    assert "144 B" in row
    held = folds(page)["tiny_training-averaged"][1]
    assert re.search(r"Counted\s+payload of all_reduce in one step, ranks 0–1: 144 B", held)


def test_the_payload_of_a_row_is_what_a_rank_sends_and_not_what_it_receives(book):
    run = book.traces["tiny_memory"].trace.runs["halves"]
    one = run.ranks[1].collectives[0]
    first = [one.model_copy(update={"operation": "send", "bytes": one.bytes // 2})]
    middle = [one.model_copy(update={"operation": name}) for name in ("recv", "send")]
    ranks = [
        rank.model_copy(update={"collectives": own})
        for rank, own in zip(run.ranks, (first, middle), strict=True)
    ]
    run = run.model_copy(update={"ranks": ranks})
    origin = Origin("desk", "tiny_memory", "halves", "")
    found = largest_payload(run, payloads(run, origin, "measured"))
    assert found.number == one.bytes
    assert found.formula == "tiny_memory.halves.ranks[1].collectives[1].bytes"


PAYLOAD = field("ranks[0].collectives[0].bytes")
PEAK = field("ranks[0].memory.peak_bytes")
RANKS = field("world_size", 4, units.COUNT, "given")


@pytest.mark.parametrize(
    ("values", "called"),
    [
        ([PEAK, None], "Measured"),
        ([field("ranks[0].memory.largest.activations_bytes")], "Measured"),
        ([field("timing.step.median_seconds", 0.1, units.SECONDS)], "Measured"),
        ([PAYLOAD, field("ranks[1].measures.pipeline_send_bytes")], "Counted"),
        ([field("ranks[1].measures.num_in_flight", 3, units.COUNT)], "Counted"),
        ([PAYLOAD * 3 / RANKS], "Computed from counts"),
        ([PEAK / RANKS, PAYLOAD + PEAK], "Computed from measurements"),
        ([PEAK, field("ranks[0].memory.peak_bytes", kind="simulated")], "Measured or simulated"),
        ([PEAK - PEAK, PEAK, PAYLOAD], "Measured, counted or computed from measurements"),
        ([], "Measured"),
    ],
)
def test_a_column_is_called_by_how_its_values_were_found(values, called):
    assert heading(values, WORDS) == called
