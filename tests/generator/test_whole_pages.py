"""The real book as a newcomer's machine shows it: whole pages, each topic from his machine.

His machine measured what a plain `make site` measures, by somebody who may shape no network: the
same as the reference machine, but for the runs that it left out or had no right to.
"""

import json
import re
import shutil

import pytest

from proofbook.generator.content.reading import load
from proofbook.generator.content.shelf import PROGRAMS
from proofbook.generator.pages import press
from proofbook.generator.pages.sheets import sheets
from proofbook.runners.core.declared.experiment import find, names
from proofbook.runners.core.trace.records import NEEDS_FULL
from tests.conftest import ROOT, not_of_the_reference
from tests.generator.conftest import fresh, render
from tests.popovers import BLOCK
from tests.recorded import as_recorded, write
from tests.whole_pages import holes, read_off, unsound

pytestmark = pytest.mark.builds
MACHINE = "newcomer"
REFERENCE = "reference-cpu-2c"
NO_RIGHTS = "needs a network of its own, which this user may not make"


def content_of(folder):
    """The book's content with the newcomer's traces beside the reference machine's."""
    content = folder / "content"
    shutil.copytree(ROOT / "content", content, ignore=not_of_the_reference)
    (folder / "runners").symlink_to(ROOT / "runners")  # lessons list parts of its programs
    own = content / "traces" / MACHINE
    own.mkdir()
    reference = content / "traces" / REFERENCE
    measured = [one for one in names() if (reference / f"{one}.json").exists()]
    for name in ("machine", *(one for one in measured if not find(one).is_full)):
        text = (reference / f"{name}.json").read_text()
        document = json.loads(text.replace(REFERENCE, MACHINE))
        if name != "machine":
            _leave_out(document, find(name))
        write(own / f"{name}.json", document)
    return content


def _leave_out(document, experiment):
    for name, declaration in experiment.runs.items():
        if declaration.full or declaration.own_network:
            run = document["runs"][name]
            reason = NEEDS_FULL.format(experiment.name) if declaration.full else NO_RIGHTS
            run.update(status="skipped", reason=reason, model=None, validation=None, allocator={})
            as_recorded(run)


# A table or a figure whose runs are all of the reference machine, which it says itself.
SAID_ONCE = re.compile(
    r"<table\b[^>]*><caption>[^/]*of the reference machine\..*?</table>"
    r"|<figure\b(?:(?!</figure>).)*?reference\.</small>.*?</figure>",
    re.DOTALL,
)


@pytest.fixture(scope="module")
def newcomers(tmp_path_factory):
    return load(content_of(tmp_path_factory.mktemp("newcomer")), MACHINE, fresh)


@pytest.fixture(scope="module")
def pages(newcomers):
    """All but those of evidence, plans and machines, which are looked up, not read."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(press, "sheets", lambda book: filter(_is_read, sheets(book)))
        return render(newcomers)


def _is_read(sheet):
    return not sheet.path.startswith(("evidence", "plan/", "machines/"))


@pytest.fixture(scope="module")
def lessons(pages):
    return {path: text for path, text in pages.items() if path.startswith("topics/")}


def test_no_page_that_people_read_has_a_hole(pages):
    assert {path: found for path, text in pages.items() if (found := holes(text))} == {}
    assert len(pages) > 150


def of_reference(number, data):
    """Whether the reference machine measured any of what a value is made of."""
    return any(
        (one.kind, one.machine) == ("measured", REFERENCE) and one.experiment != PROGRAMS
        for one in read_off(number, data)
    )


def test_every_topic_is_the_newcomers_and_numbers_of_what_he_left_out_are_marked(
    lessons, newcomers
):
    marked = 0
    for path, text in lessons.items():
        assert "This command measures what is missing" not in text, path
        data = json.loads(BLOCK.search(text)[1]) if BLOCK.search(text) else {}
        apart = SAID_ONCE.sub("", text)
        for number, shown in re.findall(r'data-v="(\d+)">(.*?)</a>', apart):
            if of_reference(int(number), data):
                assert "reference</small>" in shown, (path, shown)
                marked += 1
    assert 0 < marked < 500


def test_a_comparison_is_of_one_machine_and_says_so_once(lessons):
    text = lessons["topics/pipeline-parallelism/experiment.md"]
    text = text.partition("Before and after</a></h3>")[2]
    table = re.search(r"<table\b.*?</table>", text, re.DOTALL)[0]
    caption, *cells = re.findall(r'pb-nature">([^<]*)</small>', table)
    assert caption == "The runs of this table are of the reference machine."
    assert set(cells) == {"paced"}


def test_every_item_has_its_key_on_the_page_of_this_machine(lessons, newcomers):
    assert {path: found for path, text in lessons.items() if (found := unsound(text))} == {}
    asked = {name for text in lessons.values() for name in re.findall(r'data-item="([^"]+)"', text)}
    assert asked == {*newcomers.items}


def test_the_number_of_a_trial_stands_in_the_printed_output_or_is_named(lessons):
    seen = 0
    for path, text in lessons.items():
        for trial in text.split("\n<h2 ")[1:] if path.endswith("/try.md") else []:
            printed = re.search(r'<div class="pb-printed[^>]*>(.*?)</div>', trial, re.DOTALL)
            told = re.search(r"look for[^:]*: (.*?)</p>", trial)
            if printed and "</a>, " not in told[1]:
                unmarked = re.sub(r'<small class="pb-nature">.*?</small>', "", told[1])
                number = re.sub(r"<[^>]+>", "", unmarked).replace("\u00a0", " ").replace(" .", ".")
                assert number.rstrip(".") in printed[1], (path, number)
            seen += bool(printed)
    assert seen > 20
