"""Numbers of paced and simulated runs: wherever one stands, a word behind it says so."""

import re

import pytest

from generator.evidence.evaluation import Evidence
from generator.evidence.provenance import PageText
from generator.evidence.regime import is_replayed
from generator.evidence.sources import NATURES
from generator.pages import rendering
from tests.popovers import popovers_of

PEAK = "tiny_memory.whole.ranks[0].memory.peak_bytes"


def shown(copy, expression):
    """What a page prints for an expression, and what it opens to."""
    text = PageText(Evidence(copy.load()), 0)
    link = str(text.expression(expression))
    return link, popovers_of(text.sources.block())[0]


@pytest.mark.parametrize(
    ("nature", "kind"), [("paced", "pb-measured"), ("simulated", "pb-simulated")]
)
def test_a_number_says_its_runs_nature_and_opens_to_what_that_means(copy, nature, kind):
    copy.change_run("tiny_memory.whole", nature=nature)
    link, source = shown(copy, PEAK)
    assert kind in link
    assert f'<small class="pb-nature">{nature}</small>' in link
    assert source.nature == nature
    assert NATURES[nature].startswith(f"{nature}:")


def test_a_unit_that_the_author_wrote_stands_between_number_and_nature(copy):
    copy.change_run("tiny_memory.whole", nature="simulated")
    line = PageText(Evidence(copy.load()), 0).line
    shown = str(line("It takes {{ tiny_memory.whole.ranks[0].memory.peak_bytes / 1 }} s."))
    assert re.search(r'</a> s <small class="pb-nature">simulated</small>\.$', shown), shown


def test_one_rank_is_no_plural(copy):
    assert copy.load().run("tiny_memory.whole").world_size == 1
    line = PageText(Evidence(copy.load()), 0).line
    shown = str(line("over {{ tiny_memory.whole.world_size }} ranks"))
    assert shown.endswith(">1</a> rank")


def test_a_page_says_below_its_text_what_the_word_means_and_figures_bear_it(copy):
    before = rendering.render(copy.load())["topics/sharding/experiment.md"]
    assert "pb-nature" not in before
    for run in copy.load().traces["tiny_memory"].trace.runs:
        copy.change_run(f"tiny_memory.{run}", nature="paced")
    text = rendering.render(copy.load())["topics/sharding/experiment.md"]
    notice = text[text.rindex("</figure>") :]
    assert "<i>Paced</i>: the work of each rank lasted for a set time" in notice
    assert "as long as they were told" in notice
    captions = re.findall(r'<p class="pb-caption".*?</p>', text, re.DOTALL)
    assert captions
    assert all(">Runs drawn here: paced.</small>" in caption for caption in captions)


def test_runs_over_several_backends_are_told_apart_on_their_page(copy):
    page = "evidence/tiny_training.md"
    assert "several backends" not in rendering.render(copy.load())[page]
    for run, backend in (("averaged", "nccl"), ("drifting", "gloo"), ("single", "gloo")):
        copy.change_run(f"tiny_training.{run}", backend=backend, device="cuda")
    shown = rendering.render(copy.load())[page]
    assert "several backends" in shown
    assert "<code>nccl: averaged</code>" in shown


def test_the_foot_of_a_page_tells_a_replay_from_a_simulation_with_fake_tensors(copy):
    page = "evidence/tiny_memory.md"
    copy.change_run("tiny_memory.whole", nature="simulated")
    shown = rendering.render(copy.load())[page]
    assert "with fake tensors" in shown
    assert "come from a replay" not in shown
    run = copy.load().run("tiny_memory.whole")
    bare = [rank.model_copy(update={"memory": None}) for rank in run.ranks]
    assert not is_replayed(run)
    assert is_replayed(run.model_copy(update={"ranks": bare}))
    assert not is_replayed(run.model_copy(update={"ranks": []})), "it was skipped"
