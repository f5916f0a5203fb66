"""Items as pages and links print them: the unit asked in, and digests, by which answers count."""

import json
import re
from typing import get_args

import pytest

from proofbook.generator.items.kinds import digest_of
from proofbook.generator.items.kinds.kind import Kind
from proofbook.generator.items.kinds.typed import unit_of
from proofbook.generator.values.units import (
    BYTES,
    COUNT,
    LOSS,
    PLAIN,
    SECONDS,
    SHARE,
    TEXT,
    Form,
    Unit,
)
from proofbook.generator.values.value import Value
from tests.conftest import ROOT
from tests.generator.conftest import render
from tests.recorded import write

CHALLENGE = "topics/asking/challenge.md"
MIB = 2**20
MARK = re.compile(r"^!?[a-z0-9-]+(:[0-9a-f]{12}){1,2}$")  # as proofbook.js reads them


@pytest.mark.parametrize(
    ("number", "unit", "form", "label", "scale"),
    [
        (434 * MIB, BYTES, Form(), "MiB", MIB),
        (209715200, BYTES, Form(way="exact"), "bytes", 1),
        (3e6, Unit(num_bytes=1, num_seconds=-1), Form(), "MB/s", 1e6),
        (0.0022, SECONDS, Form(), "ms", 1e-3),
        (0.28, SHARE, Form(), "%", 0.01),
        (55_000_000, COUNT, Form(), "million", 1e6),
        (1.5, PLAIN, Form(way="times"), "times", 1),
        (2e-7, LOSS, Form(), "× 10⁻⁷", 1e-7),
        (-3.5, PLAIN, Form(), "", 1),
        ("50\u00a0×\u00a020", TEXT, Form(), "", 1),
    ],
)
def test_a_number_is_asked_in_the_unit_that_it_prints_in(number, unit, form, label, scale):
    asked = unit_of(Value(number, unit, "measured", "x", form=form))
    assert asked.label == label
    assert asked.scale == pytest.approx(scale, rel=1e-12)


def _forms(text):
    return dict(re.findall(r'data-item="([^"]+)" data-digest="([^"]+)"', text))


def test_a_rerun_with_other_times_and_losses_voids_no_answer(copy, rendered):
    path = copy.content / "traces" / "reference-frozen" / "tiny_training.json"
    trace = json.loads(path.read_text())
    trace["recorded_at"] = "2027-01-01T00:00:00Z"
    for run in trace["runs"].values():
        for epoch in run["epochs"]:
            for one in (epoch, *epoch["ranks"]):
                one["loss"] = one["loss"] * 1.01 if one["loss"] else one["loss"]
    write(path, trace)
    after = render(copy.load())[CHALLENGE]
    assert after != rendered[CHALLENGE]
    assert _forms(after) == _forms(rendered[CHALLENGE])
    assert len(_forms(after)) == 10


def _reordered(item):
    first, second, *rest = item.options
    return {"options": [second, first, *rest]}


@pytest.mark.parametrize(
    ("name", "change", "is_another"),
    [
        ("what-peak", lambda _: {"stem": "What is it?", "slips": []}, False),
        ("what-peak", lambda _: {"revision": 2}, True),
        ("what-peak", lambda _: {"answer": "tiny_memory.halves.model.bytes"}, True),
        ("how-many-bytes", _reordered, True),
        ("how-many-bytes", lambda item: {"options": [*item.options, item.options[1]]}, True),
    ],
)
def test_another_key_or_revision_is_another_question_and_another_text_is_not(
    evidence, name, change, is_another
):
    item = evidence.book.items[name]
    changed = item.model_copy(update=change(item))
    assert (digest_of(changed, evidence) != digest_of(item, evidence)) is is_another


def _links(html):
    return dict(re.findall(r'<a href="(?:[^"]*/)?(\w+)\.html" [^>]*data-items="([^"]*)"', html))


def test_a_link_carries_the_items_of_the_page_it_leads_to_with_the_digests_they_have_there(
    rendered, book
):
    seen = 0
    for topic in book.topics:
        links = _links(rendered[f"topics/{topic.id}/index.md"])
        assert links.keys() == {*topic.lessons}
        for mode, marked in links.items():
            own = re.compile(rf"topics/{topic.id}/{mode}[.-]")
            page = "".join(text for path, text in rendered.items() if own.match(path))
            forms = re.findall(r'data-item="([^"]+)"[^>]* data-digest="([^"]+)"', page)
            assert all(MARK.match(one) for one in marked.split())
            again = topic.items_by_mode.get("recall", ())
            assert {one for one in marked.split() if one[0] != "!"} == {
                one for one in marked.split() if one.strip("!").split(":")[0] in again
            }
            current = {":".join(one.strip("!").split(":")[:2]) for one in marked.split()}
            assert current == {f"{name}:{digest}" for name, digest in forms}
            seen += len(forms)
    assert seen


def test_every_kind_has_a_form_and_a_script_that_reads_it():
    forms = (ROOT / "generator/pages/templates/elements/items.j2").read_text()
    assets = ROOT / "generator/website/assets"
    scripts = [(assets / f"{name}.js").read_text() for name in ("kinds", "pieces", "numbers")]
    script = "".join(text.partition("KINDS")[2] for text in scripts)
    assert Kind.BY_MODEL
    for model, kind in Kind.BY_MODEL.items():
        (name,) = get_args(model.model_fields["kind"].annotation)
        assert f"macro {kind.places or 'typed_field'}(one)" in forms
        assert re.search(rf"\b{name}[:,]", script), name
