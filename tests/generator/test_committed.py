"""The real book over the committed traces: invariants only, since every rerun changes numbers."""

import difflib
import re
import subprocess
from collections import Counter
from contextlib import suppress
from dataclasses import replace

import pytest

from proofbook.generator.checks import trace_checks
from proofbook.generator.checks.content_checks import check
from proofbook.generator.content.errors import ContentError
from proofbook.generator.content.reading import load
from proofbook.generator.kinds.guide.words import GuideFile
from proofbook.generator.kinds.questions.kinds import kind_of
from proofbook.generator.kinds.statements.pages import Statements
from proofbook.generator.values.evaluation import Evidence
from proofbook.generator.values.perturbed import counterexample
from proofbook.generator.website.publish import committed_machines
from proofbook.runners.core.trace.machine import pinned
from proofbook.runners.system.book import ROOT, experiment_files
from tests.conftest import copy_of_the_book


def test_the_book_has_no_mistake_and_every_law_holds_or_says_why_it_does_not_apply(real):
    evidence = Evidence(real)
    assert [str(error) for error in check(evidence)] == []
    outcomes = evidence.judged_claims.items()
    assert {name: one.explanation for name, one in outcomes if one.is_broken_law} == {}


@pytest.mark.parametrize("machine", ["cpu-1c-ea2ab3", "1x-h200-af8bca"])
def test_no_law_is_false_on_another_committed_machine_one_of_which_has_a_gpu(machine):
    book = load(ROOT / "content", machine, is_stale=lambda _: False)
    found = [one for one in Evidence(book).judged_claims.values() if one.claim.kind == "law"]
    assert sum(one.verdict == "holds" for one in found) > 20
    assert {one.claim.id for one in found if one.verdict == "does_not_hold"} == set()


def test_every_key_moves_once_a_claim_behind_it_is_refuted(real):
    evidence, stuck, num_moved = Evidence(real), [], 0
    for item in real.items.values():
        key = kind_of(item, evidence).key
        for position in key.right if item.kind in ("choice", "several") else ():
            claim = item.options[position].right_if.claim
            if evidence.judged(claim).verdict != "holds":
                continue
            with suppress(ContentError):  # it has no key any more, or two
                stuck += (
                    [item.id] if kind_of(item, counterexample(evidence, claim)).key == key else []
                )
            num_moved += 1
    assert stuck == []
    assert num_moved >= len(real.topics)


def test_the_book_that_tests_read_is_of_committed_machines_alone(real):
    """`tests/test_readme.py` asks again where own traces and a try lie beside it."""
    if not (ROOT / ".git").exists():
        pytest.skip("this tree is no clone")
    listed = ["git", "ls-tree", "--name-only", "HEAD:content/traces"]
    done = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True)
    assert {*real.machines} == {*done.stdout.split()}
    assert {one.machine.name for one in real.traces.values() if not one.nature} == {
        real.reference.name
    }
    assert real.tries == ()


def test_the_book_that_tests_build_holds_what_is_to_be_committed(tmp_path):
    if not (ROOT / ".git").exists():
        pytest.skip("this tree is no clone")
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    folders = ["content/traces/reference-*", "content/tries"]
    done = subprocess.run([*listed, *folders], cwd=ROOT, check=True, capture_output=True, text=True)
    copy = copy_of_the_book(tmp_path)
    found = (*copy.glob("content/traces/**/*"), *copy.glob("content/tries/**/*"))
    paths = {one.relative_to(copy).as_posix() for one in found if one.is_file()}
    assert paths == {*done.stdout.split()}


def test_where_all_code_has_changed_each_experiment_is_shown_and_named_in_one_line(real):
    """Also the labs, whose pages link to each of their runs."""
    content = real.root / "content"
    machines = committed_machines(content)
    book = load(content, real.reference.name, is_stale=lambda _: True, only=machines)
    assert {name: one.trace.runs.keys() for name, one in book.traces.items()} == {
        name: one.trace.runs.keys() for name, one in real.traces.items()
    }
    said = trace_checks.problems(book, {})
    assert len(said) == len(book.traces)
    for name in experiment_files():
        (line,) = (one for one in said if one.startswith(f"{name}: "))
        assert f"`python -m runners run {name} --as-reference --full`" in line


def test_a_release_of_torch_or_numpy_other_than_that_of_the_traces_is_named(real):
    assert [*trace_checks.other_releases(real, pinned)] == []
    shown = real.traces["ddp"]
    under = shown.trace.circumstances.model_copy(update={"torch": "9.0.0+cpu", "numpy": "8.0.0"})
    trace = shown.trace.model_copy(update={"circumstances": under})
    book = replace(real, traces={"ddp": replace(shown, trace=trace)})
    said = [*trace_checks.other_releases(book, pinned)]
    assert said == [
        f"ddp: measured with {name} {then}, and {pinned(name)} is pinned; take {then}, or measure "
        "again"
        for name, then in (("torch", "9.0.0"), ("numpy", "8.0.0"))
    ]
    assert trace_checks.problems(book, {}) == said


LISTED = "ddp_smallest"


def test_an_experiment_and_a_program_that_no_machine_has_measured_are_named(real):
    assert trace_checks.unmeasured(real) == {}
    shown = real.traces["listings"]
    runs = {name: run for name, run in shown.trace.runs.items() if name != LISTED}
    fewer = {"listings": replace(shown, trace=shown.trace.model_copy(update={"runs": runs}))}
    (program,) = {name for name, one in trace_checks.unmeasured(replace(real, traces=fewer)).items()
                  if one == "listings"}  # fmt: skip
    assert program == shown.trace.runs[LISTED].settings["program"]
    assert trace_checks.unmeasured(replace(real, traces={})).keys() == experiment_files().keys()


STRUCTURE = re.compile(r"(?<![\w.])(?:[3-9]|1[0-2])(?![\w.])")  # tensors, passes, ranks: counted
NO_STRUCTURE = re.compile(r"'[^']*'|\[[^\]]*\]|digits\(\d+\)|given\S*")
WORDS = dict(enumerate(["three", "four", "five", "six", "seven", "eight", "nine"], 3))


def test_a_number_that_a_prediction_counts_with_is_named_beside_it(real):
    def is_named(number, claim):
        named = rf"(?<!\d){number}(?!\d)|\b{WORDS.get(int(number))}\b"
        return re.search(named, f"{claim.says} {claim.formula or ''}")

    counted = [
        (one, number)
        for one in real.claims.values()
        for number in STRUCTURE.findall(NO_STRUCTURE.sub("", one.predicted))
    ]
    assert counted
    assert [(one.id, number) for one, number in counted if not is_named(number, one)] == []


def test_a_statement_names_its_exact_source_and_no_other_is_of_the_same_subject_and_verb(real):
    statements = list(real.part(Statements).values())
    assert [one.id for one in statements if one.source is None] == []
    beginnings = Counter(" ".join(one.said.lower().split()[:3]) for one in statements)
    assert [words for words, number in beginnings.items() if number > 1] == []


def test_a_question_that_calculates_with_measured_times_states_them(real):
    numbers = [one for one in real.items.values() if one.kind == "number"]
    asked = [(one, run) for one in numbers for run in re.findall(r"\w+\.\w+\.timing", one.answer)]
    assert asked
    assert [(one.id, run) for one, run in asked if run not in one.stem] == []


def test_a_process_that_ended_is_asked_why_before_it_is_restarted(real):
    (hangs,) = [one for _, one in real.file(GuideFile).symptoms if one.id == "hangs"]
    ended = hangs.edges[0]
    assert "process of a rank end" in ended.ask
    assert ended.use is None
    assert "-9" in ended.edges[0].ask
    assert [one.use for one in ended.edges] == [None, None, "restart"]


def test_what_a_rank_holds_is_said_to_include_gradients_that_are_not_freed_yet(real):
    texts = {one.id: one.says for one in real.claims.values()}
    texts |= {one.id: one.stem for one in real.items.values()}
    loose = [name for name, text in texts.items() if re.search(r"[Bb]etween (two )?steps", text)]
    assert [name for name in loose if "zero_grad" not in texts[name]] == []


@pytest.mark.parametrize(
    ("begins", "ends", "before", "after"),
    [
        ("", "## Then", "sharding/code/from_ddp.py", "sharding/code/to_fsdp.py"),
        ("## Then", "", "sharding/code/to_fsdp.py", "meshes-and-experts/code/to_mesh.py"),
    ],
)
def test_the_page_from_ddp_to_fsdp_shows_every_line_in_which_its_programs_differ(
    begins, ends, before, after
):
    page = (ROOT / "content" / "pages" / "from-ddp-to-fsdp.md").read_text(encoding="utf-8")
    part = page[page.index(begins) : page.index(ends) if ends else None]
    was, now = (
        (ROOT / "content" / "topics" / name).read_text(encoding="utf-8").split('"""', 2)[2]
        for name in (before, after)
    )
    fences = re.findall(r"^```diff\n(.*?)^```$", part, re.DOTALL | re.MULTILINE)
    shown = "".join(fences).splitlines()
    was, now = was.splitlines(), now.splitlines()
    differ = [line for line in difflib.ndiff(was, now) if line[0] in "+-"]
    assert sorted(line for line in shown if line[:1] in ("+", "-")) == sorted(differ)
    assert {line[2:] for line in shown if line.startswith("  ")} <= {*was} & {*now}
