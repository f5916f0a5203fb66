"""Values in HTML: a link each to its run, and one block of data that they open to their source."""

import json

from generator.evidence import units
from generator.evidence.provenance import PageText
from generator.evidence.value import Origin, Value
from tests.popovers import BLOCK, popovers_of


def sources(page):
    return popovers_of(page.sources.block())


def test_a_value_is_a_link_to_its_run_that_opens_its_provenance(evidence):
    page = PageText(evidence, depth=2)
    line = page.line("It needs {{ tiny_memory.whole.ranks[0].memory.peak_bytes }}.")
    assert line == (
        'It needs <a class="pb-value pb-measured" '
        'href="../../evidence/tiny_memory.html#whole" data-v="0">160\u00a0KiB</a>.'
    )
    (source,) = sources(page)
    assert source.shown == "160\u00a0KiB"
    assert source.kind == "measured"
    assert source.exactly == "164,000\u00a0bytes"
    assert source.source == "tiny_memory · whole · ranks[0].memory.peak_bytes"
    assert source.on == "reference-frozen, 2 January 2026, 03:04:05 UTC, 2.13.0"
    assert source.command == (
        ".venv/bin/python -m runners reproduce 'tiny_memory.whole.ranks[0].memory.peak_bytes'"
    )
    assert json.loads(BLOCK.search(page.sources.block())[1])["root"] == "../../"


def test_a_computed_value_opens_to_its_formula_and_inputs(evidence):
    page = PageText(evidence, depth=1)
    link = page.expression("2 * tiny_memory.whole.model.bytes")
    assert 'href="../evidence/tiny_memory.html#whole"' in link
    computed, given = sources(page)
    assert computed.formula == "2 * tiny_memory.whole.model.bytes"
    assert computed.inputs == (("78.1\u00a0KiB", "given"),)
    assert given.source == "tiny_memory · whole · model.bytes"


def test_a_cited_value_names_its_source_and_leads_to_it(evidence):
    page = PageText(evidence, depth=1)
    line = page.line("{{ cited['fp32-width'] }}")
    assert 'class="pb-value pb-cited" href="../evidence.html#reference-' in line
    assert "IEEE Standard for Floating-Point Arithmetic (IEEE, 2019)" in sources(page)[0].formula


def test_values_that_share_a_formula_lead_to_it_and_it_stands_once(evidence):
    page = PageText(evidence, depth=0)
    for number in (1, 2):
        value = Value(number, units.PLAIN, "computed", "a / b")
        assert 'href="#pb-formulas"' in page.shown_alike(value, "off-by", "a / b")
    assert [one.formula for one in sources(page)] == ["a / b"]
    assert page.sources.formulas == {"off-by": "a / b"}


def test_text_from_a_trace_is_escaped(evidence):
    page = PageText(evidence, depth=0)
    origin = Origin('"<m>', "e", 'r"', "printed[0]")
    value = Value("<script>1</script>", units.TEXT, "measured", "<f>", origin=origin)
    assert "<script>1" not in page.show(value) + page.sources.block()
    assert page.sources.block().count("<") == 2, "no text of a trace ends the block of data"
    assert page.show(value).count('"') == 6
    assert sources(page)[0].shown == "<script>1</script>"


def test_a_claims_sentence_is_rendered_with_its_own_values(evidence):
    page = PageText(evidence, depth=0)
    line = page.line("{{ showed('averaging-is-slower') }}")
    assert line.count("<a ") == 2
    assert line.startswith("Averaging took ")
