"""Pages: texts stay text, bars are as long as peaks, arrows lead where a run sent."""

import re
from dataclasses import replace
from typing import get_args

import pytest
import yaml
from markdown import Markdown
from markupsafe import Markup

from proofbook.generator.kinds.statements.pages import Statements, bears_out
from proofbook.generator.kinds.statements.words import SentenceVerdict
from proofbook.generator.pages import facts
from proofbook.generator.pages.elements.element import Apart, Block, Fold, Made, Waiting
from proofbook.generator.pages.elements.programs import ListedProgram, WholeProgram
from proofbook.generator.pages.press import Press
from proofbook.generator.printing.folio import Folio
from proofbook.generator.website import publish
from tests.generator.conftest import render
from tests.generator.scenes import a_program_repeats_two_statements, a_stage_broadcast
from tests.popovers import BLOCK, popovers_of

TRACE = "topics/averaging/trace.md"
INJECTED = "<script>alert('x')</script>"


def test_a_script_in_any_text_of_the_book_is_shown_as_text(copy):
    copy.add_machine("desk", "tiny_memory", "tiny_training")  # where no writing is judged
    changed = 0
    for document in (one for one in copy.load().documents if one.source.file.endswith(".yml")):
        file = copy.content.parent / document.source.file
        written = yaml.safe_load(file.read_text(encoding="utf-8"))
        for field in document.fields:
            if field.mark in ("line", "prose"):
                place = written
                for key in field.path[:-1]:
                    place = place[key]
                place[field.path[-1]] += f" {INJECTED}"
                changed += 1
        file.write_text(yaml.safe_dump(written), encoding="utf-8")
    assert changed > 50
    for page, text in render(copy.load()).items():
        assert "<script" not in text.rpartition('<script type="application/json"')[0], page
        assert "<script" not in "".join(one[1] for one in BLOCK.finditer(text)), page
        if page != "topics/index.md" and not page.startswith(("evidence/", "machines/", "marks")):
            assert "alert(" in text, page


def test_markdown_in_a_title_stays_text_in_the_heading(copy):
    copy.edit(
        "topics/sharding/experiment.yml", "title: Splitting a model", 'title: "a_b_c [x](y)# *z"'
    )
    text = render(copy.load())["topics/sharding/experiment.md"]
    heading = next(line for line in text.splitlines() if line.startswith("<h1"))
    assert "a_b_c" in heading
    assert "*z" in heading
    assert Markdown().convert(heading) == heading


def test_bars_are_the_peaks_of_the_machine_at_hand_on_one_axis(copy):
    copy.add_machine("desk", "tiny_memory", "tiny_training")
    book = copy.load()
    page = render(book)["index.md"]
    peaks = [
        rank.memory.peak_bytes
        for run in ("tiny_memory.whole", "tiny_memory.halves", "tiny_memory.halves")
        for rank in book.run(run).ranks
    ]
    bar = r'<p(?: class="pb-within")?><svg width="([\d.]+)%"'
    shares = [float(one) for one in re.findall(bar, page)]
    assert [one / shares[0] for one in shares] == pytest.approx(
        [peak / peaks[0] for peak in peaks], rel=1e-3
    )
    opened = popovers_of(page)
    assert all(opened[int(n)].on != "reference-frozen" for n in re.findall(r'data-v="(\d+)"', page))


def _num_heads(page):
    """The heads of arrows of the stage that trains: what paths draw beyond their first line."""
    (stage,) = re.findall(r'id="stage-train".*?</details>', page, re.DOTALL)
    outlines = re.findall(r'<path class="pb-communication" d="([^"]*)"', stage)
    return sum(outline.count("M") - 1 for outline in outlines)


def test_an_operation_of_all_ranks_has_a_head_where_a_rank_receives(copy, rendered):
    assert _num_heads(rendered[TRACE]) == 2 * 2  # all_reduce: both send and receive
    a_stage_broadcast(copy)
    assert _num_heads(render(copy.load())[TRACE]) == 1


# --- the first hour on its pages and on the Path, a page by hand in it, and the minutes of a


HAND = "---\ntitle: Your first run\ndescription: All of it\n---\n\n{}\n"
LAST = '  - {page: averaging/learn, says: "What do ranks average?"}\n'
ADDED = '  - {page: about, says: "Which program do you start?"}\n'


@pytest.fixture
def with_a_page_by_hand(copy):
    """The frozen book, whose first hour ends with a page of content/pages."""
    (copy.content / "pages").mkdir(exist_ok=True)
    path = copy.content / "pages" / "about.md"
    path.write_text(HAND.format("word " * facts.WORDS_PER_MINUTE * 5))
    copy.edit("site.yml", LAST, LAST + ADDED)
    return copy


def test_a_page_by_hand_is_on_the_way_and_the_path_adds_its_minutes(with_a_page_by_hand):
    pages = render(with_a_page_by_hand.load())
    rail = re.search(r'<nav class="pb-rail".*?</nav>', pages["about.md"], re.DOTALL)[0]
    assert 'href="topics/index.html#first-hour">First hour</a>' in rail
    assert ">3/3<" in rail
    assert 'rel="next"' not in rail
    before = pages["topics/averaging/learn.md"]
    assert before.count('rel="next" href="../../about.html"') == 2
    path = pages["topics/index.md"].partition("All topics")[0]
    total, *each = map(int, re.findall(r">(\d+)</span>&nbsp;minutes", path))
    assert each[-1] == 5
    assert total == sum(each)


def test_minutes_count_what_a_page_shows_its_questions_and_its_code():
    folio = Folio(None, None)
    text = Markup(f"<p>{'word ' * facts.WORDS_PER_MINUTE * 3}</p>")
    folded = Fold(Markup("More"), [text])
    assert facts.minutes([text], folio) == 3
    assert facts.minutes([text, Waiting("asked", "what", [text])], folio) == 6
    listed = ListedProgram(Markup(), "", Markup(), 2 * facts.LINES_PER_MINUTE, "", None)
    whole = WholeProgram(listed)
    assert (
        facts.minutes([text, whole, replace(whole, notes=Made("Notes", rows=[]))], folio) == 3 + 2
    )
    folio.items += ["asked"] * 4
    asked = 4 * facts.MINUTES_PER_QUESTION
    assert facts.minutes([Block([text, folded, Apart([text])])], folio) == 3 + asked


# --- retracted sentences: the verdicts that they may have, and the programs that repeat them


def test_a_program_is_published_whole_where_its_link_leads(copy):
    a_program_repeats_two_statements(copy)
    files = publish.site_files(copy.load(), copy.content, Press())
    program = (copy.content / "retracted" / "shown.py").read_bytes()
    assert files["programs/shown.py"] == program
    assert 'href="programs/shown.py" download' in files["retracted.md"].decode()


def test_a_sentence_that_its_claim_leaves_open_gets_no_verdict(book, evidence):
    for sentence in book.part(Statements).values():
        outcome = evidence.judged(sentence.claim)
        for verdict in get_args(SentenceVerdict):
            one = sentence.model_copy(update={"verdict": verdict})
            for undecided in ("no_evidence", "does_not_apply"):
                assert not bears_out(one, replace(outcome, verdict=undecided))
