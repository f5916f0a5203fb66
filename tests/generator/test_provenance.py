"""Values in HTML: a button each, one popover for each distinct value, all of it escaped."""

import re

from generator.evidence import units
from generator.evidence.provenance import PageText
from generator.evidence.value import Origin, Value


def test_a_value_is_a_button_that_opens_its_provenance(evidence):
    page = PageText(evidence, depth=2)
    line = page.line("It needs {{ tiny_memory.whole.ranks[0].memory.peak_bytes }}.")
    assert line == (
        'It needs <button type="button" class="pb-value pb-measured" popovertarget="pb-v1">'
        "160\u00a0KiB</button>."
    )
    popover = page.provenances()
    for part in (
        'popover id="pb-v1"',
        "164,000\u00a0bytes",
        "reference-frozen",
        "tiny_memory · whole · ranks[0].memory.peak_bytes",
        "2026-01-02T03:04:05Z, torch 2.13.0",
        '<a href="../../index.html#repeat">repeat</a>',
        ".venv/bin/python -m runners reproduce "
        "&#39;tiny_memory.whole.ranks[0].memory.peak_bytes&#39;</code>",
        'href="../../traces/reference-frozen/tiny_memory.json"',
    ):
        assert part in popover


def test_equal_values_share_one_popover_and_different_ones_do_not(evidence):
    page = PageText(evidence, depth=0)
    page.line("{{ tiny_memory.whole.seed }} {{ tiny_memory.whole.seed }}")
    page.prose("{{ tiny_memory.whole.seed }} {{ tiny_memory.halves.seed }}")
    assert re.findall(r'id="(pb-v\d+)"', page.provenances()) == ["pb-v1", "pb-v2"]


def test_a_computed_value_opens_to_its_formula_and_inputs(evidence):
    page = PageText(evidence, depth=1)
    page.expression("2 * tiny_memory.whole.model.bytes")
    popover = page.provenances()
    assert "<code>2 * tiny_memory.whole.model.bytes</code>" in popover
    assert "<code>tiny_memory.whole.model.bytes</code> = 78.1\u00a0KiB (given)" in popover
    assert 'href="../traces/reference-frozen/tiny_memory.json"' in popover


def test_a_cited_value_names_its_source(evidence):
    page = PageText(evidence, depth=1)
    assert 'class="pb-value pb-cited"' in page.line("{{ cited['fp32-width'] }}")
    assert "IEEE Standard for Floating-Point Arithmetic (IEEE, 2019)" in page.provenances()


def test_text_from_a_trace_is_escaped(evidence):
    page = PageText(evidence, depth=0)
    origin = Origin("<m>", "e", "r", "printed[0]")
    value = Value("<script>1</script>", units.TEXT, "measured", "<f>", origin=origin)
    assert "<script" not in page.show(value) + page.provenances()


def test_a_claims_sentence_is_rendered_with_its_own_values(evidence):
    page = PageText(evidence, depth=0)
    line = page.line("{{ showed('averaging-is-slower') }}")
    assert line.count("<button") == 2
    assert line.startswith("Averaging took ")


def test_rank_labels_print_as_words(evidence):
    assert PageText(evidence, 0).line("On {{ rank(1) }}.") == "On rank\u00a01."
