"""Values in HTML: a link each to its run, and one block of data that they open to their source."""

from generator.evidence import units
from generator.evidence.folio import Folio
from generator.evidence.value import Origin, Value
from tests.popovers import popovers_of


def sources(page):
    return popovers_of(page.sources.block())


def test_text_from_a_trace_is_escaped(evidence):
    page = Folio(evidence, evidence)
    origin = Origin('"<m>', "e", 'r"', "printed[0]")
    value = Value("<script>1</script>", units.TEXT, "measured", "<f>", origin=origin)
    assert "<script>1" not in page.show(value) + page.sources.block()
    assert page.sources.block().count("<") == 2, "no text of a trace ends the block of data"
    assert page.show(value).count('"') == 6
    assert sources(page)[0].shown == "<script>1</script>"
