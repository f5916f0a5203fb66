"""Values in HTML: each opens to its run, and says where that was no plain run of this machine."""

import pytest

from generator.printing.folio import Folio
from generator.values import units
from generator.values.evaluation import Evidence
from generator.values.value import Origin, Value
from tests.generator import scenes
from tests.popovers import popovers_of

PEAK = "tiny_memory.whole.ranks[0].memory.peak_bytes"
STEP = "median(tiny_training.averaged.timing.step)"


@pytest.mark.parametrize(
    ("happens", "expression", "kind", "nature"),
    [
        (scenes.a_run_was_paced, PEAK, "measured", "paced"),
        (scenes.a_run_was_simulated, PEAK, "simulated", "simulated"),
        (scenes.ranks_shared_cores, STEP, "measured", "oversubscribed"),
        (scenes.ranks_shared_cores, f"{STEP} / 2", "computed", "oversubscribed"),
    ],
)
def test_a_number_says_its_runs_nature_and_opens_to_it(copy, happens, expression, kind, nature):
    happens(copy)
    evidence = Evidence(copy.load())
    text = Folio(evidence, evidence)
    link = str(text.expression(expression))
    assert f"pb-{kind}" in link
    assert f'<small class="pb-nature">{nature}</small>' in link
    assert popovers_of(text.sources.block())[0].nature == nature


def test_what_is_computed_of_published_rates_is_not_said_to_be_simulated(real):
    text = Folio(Evidence(real), Evidence(real))
    link = str(text.expression("plan_steps.a100.ranks[0].measures.num_rows"))
    assert "pb-computed" in link
    assert "pb-nature" not in link
    assert not popovers_of(text.sources.block())[0].nature


def test_a_value_in_the_words_of_a_link_opens_nothing(evidence):
    page, peak = Folio(evidence, evidence), f"{{{{ {PEAK} }}}}"
    plain = f'<span class="pb-label">{evidence.value(PEAK)}</span>'
    linked, rest = str(page.line(f"[Its {peak}](deep.html), {peak}")).split("</a>, ")
    assert linked == f'<a href="deep.html">Its {plain}'
    assert rest.startswith('<a class="pb-value')
    assert page.in_link.line(peak) == plain


def test_text_from_a_trace_is_escaped(evidence):
    page = Folio(evidence, evidence)
    origin = Origin('"<m>', "e", 'r"', "printed[0]")
    value = Value("<script>1</script>", units.TEXT, "measured", "<f>", origin=origin)
    assert "<script>1" not in page.show(value) + page.sources.block()
    assert page.sources.block().count("<") == 2, "no text of a trace ends the block of data"
    assert page.show(value).count('"') == 6
    assert popovers_of(page.sources.block())[0].shown == "<script>1</script>"
