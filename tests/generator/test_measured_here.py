"""Where a topic shows the reference machine: what the machine at hand has measured of it."""

import json
import re

from proofbook.generator.values.evaluation import Evidence
from proofbook.generator.values.machines import measured_here
from proofbook.runners.core.trace.measured import SampledSeconds
from tests.generator import scenes
from tests.generator.conftest import CONTENT, render
from tests.popovers import popovers_of

EXPERIMENTS = ("tiny_memory", "tiny_training")  # that the topic names
STEP = "tiny_training · averaged · timing.step.median_seconds"
WORDS = re.compile("digest|shape")  # which are no numbers
MISSING = re.compile(
    r"desk</span></code> has measured .*?>(\d+)</span> of the .*?>(\d+)</span> runs that this topic"
    r" needs. This command measures what is missing: <code>make traces NAMES=&#39;(.*?)&#39;"
)


def lessons_of(copy):
    pages = render(copy.load())
    return {path: text for path, text in pages.items() if path.startswith("topics/averaging/")}


def printed(text):
    """The values of a page that it prints, and not those alone that others are computed from."""
    values = popovers_of(text)
    return [values[int(number)] for number in {*re.findall(r'data-v="(\d+)"', text)}]


def test_what_this_machine_has_measured_of_a_topic_stands_beside_the_reference(copy):
    """Each number of a run that its trace has, and none of another; a computed one as well."""
    copy.add_machine("desk", "tiny_training")
    timing = copy.recorded(scenes.AVERAGED)["timing"]
    step = SampledSeconds.of([0.0009] * 8).model_dump(mode="json")
    copy.change_run(scenes.AVERAGED, "desk", timing=timing | {"step": step})
    measured = copy.recorded(scenes.AVERAGED, "desk")["timing"]["step"]["median_seconds"]
    lessons = lessons_of(copy)
    found = [one for text in lessons.values() for one in printed(text)]
    steps = {(one.on.partition(",")[0], one.here) for one in found if one.source == STEP}
    assert steps == {("reference-frozen", f"{measured * 1e6:.0f}\N{NO-BREAK SPACE}µs on desk")}
    read_off = [one for one in found if one.kind == "measured" and not WORDS.search(one.source)]
    for one in read_off:
        assert bool(one.here) == one.source.startswith("tiny_training"), one
    computed = [one for one in found if one.kind == "computed" and one.here]
    assert computed
    assert not any("tiny_memory" in one.formula for one in computed)
    text = lessons["topics/averaging/worked.md"]
    assert re.findall(r"pb-moved[^>]*>([^<]*)", text).count("2.20\N{NO-BREAK SPACE}ms") > 1
    assert re.search(r">1</span> differs:", text)


def test_what_older_code_measured_here_or_ended_otherwise_stands_beside_nothing(copy):
    copy.add_machine("desk", "tiny_training")
    copy.change_run("tiny_training.single", "desk", expected_status="out_of_memory")

    def here(run, **how):
        at_hand = Evidence(copy.load(**how))
        loss = at_hand.reference.value(f"tiny_training.{run}.epochs[0].loss")
        return measured_here(loss, at_hand)

    assert here("averaged").machines == {"desk"}
    assert here("single") is None
    assert here("averaged", is_stale=lambda trace: trace.machine == "desk") is None


def test_the_foot_of_a_topic_counts_the_runs_that_are_missing_here_and_measures_them(copy):
    runs = {path: [*json.loads(copy.trace(path).read_text())["runs"]] for path in EXPERIMENTS}
    copy.add_machine("desk", "tiny_training")
    for gone in (None, "tiny_training.single"):
        if gone:
            copy.remove_run(gone, "desk")
        own = json.loads(copy.trace("tiny_training", "desk").read_text())["runs"]
        missing = {name for name, all_runs in runs.items() if {*all_runs} - {*own}}
        num = str(len(own)), str(sum(map(len, runs.values())))
        feet = [MISSING.search(text) for text in lessons_of(copy).values() if "pb-foot" in text]
        assert {foot.groups() for foot in feet} == {(*num, " ".join(sorted(missing)))}


def test_no_author_says_this_machine_since_another_may_be_shown():
    files = [path for end in ("yml", "md") for path in CONTENT.rglob(f"*.{end}")]
    assert len(files) > 100
    said = re.compile(r"\bthis machine\b", re.IGNORECASE)
    assert [path for path in files if said.search(path.read_text(encoding="utf-8"))] == []
