"""A book of one's own, as `proofbook new book` writes it: green at once, red for each mistake."""

import json
import os
import re
import shutil
import sys
import tomllib

import pytest
import yaml

from proofbook.generator.__main__ import main
from proofbook.generator.checks import site_checks
from proofbook.generator.content import scaffold
from proofbook.runners.commands.reproduce import requested
from proofbook.runners.core.declared.experiment import find
from proofbook.runners.plain.measure import measure_run
from proofbook.runners.system.book import enter_book
from proofbook.runners.system.errors import FixableError
from proofbook.runners.traces.digest import forget_code
from proofbook.runners.traces.summary import how_it_ended
from tests.conftest import ROOT
from tests.processes import ran
from tests.sampled import REFERENCE

pytestmark = pytest.mark.builds
BUILD = ("mkdocs", "build", "--strict")
QUIZ, LEARN = (f"content/topics/sorting/{name}.yml" for name in ("quiz", "learn"))
CLAIMS, PROGRAM = "content/claims/sorting.yml", "experiments/sorting.py"


@pytest.fixture(scope="module")
def call(tmp_path_factory):
    """Call a module in a folder, without torch and without what this clone's tests have set."""
    no_torch = tmp_path_factory.mktemp("path")
    (no_torch / "torch.py").write_text("raise ImportError('torch was loaded')\n")
    environment = {k: v for k, v in os.environ.items() if "PROOFBOOK" not in k}
    environment |= {"PYTHONPATH": f"{no_torch}:{ROOT}", "NO_MKDOCS_2_WARNING": "1"}

    def called(folder, *words):
        done = ran([sys.executable, "-P", "-m", *words], folder, environment)
        return done.returncode, done.stdout + done.stderr

    return called


@pytest.fixture(scope="module")
def made(tmp_path_factory, call):
    folder = tmp_path_factory.mktemp("new") / "book"
    code, said = call(folder.parent, "proofbook", "new", "book", folder)
    assert code == 0, said
    assert "4 questions checked, 7 of 7 claims hold" in said
    return folder


@pytest.fixture
def book(made, tmp_path, monkeypatch):
    """A copy of it, which this process works in, too."""
    folder = shutil.copytree(made, tmp_path / "book")
    monkeypatch.delenv("PROOFBOOK_MACHINE", raising=False)
    monkeypatch.chdir(folder)
    enter_book(folder)
    yield folder
    enter_book(None)


def measured(book):
    """The comparisons of each run."""
    (path,) = book.glob("content/traces/reference-*/sorting.json")
    runs = json.loads(path.read_text())["runs"].items()
    return {name: run["ranks"][0]["measures"]["num_comparisons"] for name, run in runs}


def test_its_runs_count_what_arithmetic_says_and_its_own_test_passes_without_torch(book, call):
    counts = measured(book)
    assert counts["ascending"] == 63
    assert [counts[f"descending{end}"] for end in ("_16", "_32", "")] == [120, 496, 2016]
    assert 63 < counts["shuffled"] < 2016
    assert call(book, "pytest", "-q", "tests")[0] == 0
    shown = (book / "site/pages/topics/sorting/learn.md").read_text()
    assert "2,016" in shown
    assert "torch" not in shown
    evidence = (book / "site/pages/evidence.md").read_text()
    assert "observations say" not in evidence
    assert evidence.count("<table") == 1  # none of errors, since no law has one
    code, said = call(book, "proofbook", "reproduce", "sorting")
    assert (code, "5 of 5 are the same" in said) == (0, True)


@pytest.mark.parametrize(
    ("file", "before", "after", "told"),
    [
        (QUIZ, "ascending.measures.num_", "ascending.measures.no_",
         "quiz.yml:19:13: sorting.ascending.measures.no_comparisons"),
        (LEARN, "{{ sorting.", "{{ sortin.", "did you mean 'sorting'?"),
        (LEARN, "takeaway:", "takeawy:", "unknown key 'takeawy'"),
        (LEARN, "three orders", "3 orders", "bare numeral '3'"),
        (CLAIMS, "num_values - 1", "num_values", "sorting.yml:2:5: law sorting-few"),
        ("content/misconceptions.yml", "order-decides", "order", "no claim 'sorting-ord"),
        (QUIZ, "verdict: does_not_hold", "verdict: holds",
         "2 right options: 'Ascending' and 'Descending'; correct `right_if:`"),
        (CLAIMS, "settings.num_pairs", "timing.wall_seconds",
         "a setting is in seconds if its name ends in `_seconds`"),
        (PROGRAM, '"shuffled": Plain("insert', '"shuffled": Plain("insrt',
         "experiments/sorting.py: run 'shuffled': no function 'insrtion_sort' (did you mean"),
        (PROGRAM, "RUNS = {", "RUNS = few | {",
         "experiments/sorting.py:53: NameError: name 'few' is not defined; correct this file"),
        (PROGRAM, "import random", "import sys\nsys.exit(3)",
         "experiments/sorting.py:4: SystemExit: 3; correct this file"),
        (PROGRAM, "import random", "from experiments._shared import some",
         "experiments/sorting.py:3: ModuleNotFoundError: No module named 'experiments._shared'"),
        ("mkdocs.yml", "  - proofbook", "  #", "mkdocs.yml: proofbook is missing under plugins:"),
        ("mkdocs.yml", "plugins:", "plugins: [", "mkdocs.yml: while parsing"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_place(book, capsys, file, before, after, told):
    path = book / file
    path.write_text(path.read_text().replace(before, after, 1))
    forget_code()
    assert main(["check"]) == (2 if file.startswith("content/") else 1)
    assert told in capsys.readouterr().err


def test_an_observation_that_is_false_is_told_and_the_book_not_called_sound(book, capsys):
    path = book / CLAIMS
    law = "  - id: sorting-shuffled\n"
    text = path.read_text().replace("relation: below", "relation: above", 1)
    path.write_text(text.replace(law, f"{law}    kind: observation\n"))
    assert main(["check"]) == 0
    told, sound = capsys.readouterr().out.splitlines()
    assert "observation  sorting-shuffled@sorting.shuffled: observed is at most predicted: " in told
    assert "predicted 2,016 = sorting.shuffled.settings.num_pairs, observed" in told
    assert sound.startswith("sound, but 1 observation does not hold: 4 questions checked, 6 of 7 ")


def test_a_book_that_is_made_within_another_has_its_own_traces(book, call):
    before = {path: path.read_bytes() for path in book.rglob("*.json")}
    code, said = call(book, "proofbook", "new", "book", "../second")
    assert (code, "7 of 7 claims hold" in said) == (0, True), said
    assert measured(book.with_name("second")) == measured(book)
    assert {path: path.read_bytes() for path in book.rglob("*.json")} == before


def test_a_file_whose_ending_is_not_read_is_told_with_the_one_that_is(book, capsys):
    for file in ("topics/sorting/quiz-drawn", "claims/more"):
        (book / "content" / f"{file}.yaml").touch()
    assert main(["check"]) == 2
    first, second, _ = capsys.readouterr().err.splitlines()
    told = "files of a book end in `.yml`; rename it to"
    assert first == f"content/claims/more.yaml: {told} more.yml"
    assert second == f"content/topics/sorting/quiz-drawn.yaml: {told} quiz-drawn.yml"


def test_the_command_tells_its_version_and_all_commands_under_its_own_name(call, tmp_path):
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert call(tmp_path, "proofbook", "--version") == (0, f"proofbook {version}\n")
    code, said = call(tmp_path, "proofbook", "--help")
    assert (code, "The others:\n\n    proofbook list [NAME …] " in said) == (0, True)
    assert "python -m" not in said


@pytest.mark.parametrize(
    ("folder", "title", "called"),
    [
        ("my-sorting_lab", None, "My sorting lab"),
        ("week 3", None, "Sorting, measured"),  # a numeral is no title
        ("a", 'Sorting: "fast"', 'Sorting: "fast"'),
    ],
)
def test_a_book_is_called_as_its_folder_or_by_a_title(tmp_path, folder, title, called):
    scaffold.new_book(tmp_path / folder, title)
    read = [(tmp_path / folder / one).read_text() for one in ("mkdocs.yml", "content/site.yml")]
    site, home = map(yaml.safe_load, read)
    assert (site["site_name"], home["title"]) == (called, called)


def test_a_title_that_no_page_may_have_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(scaffold.CannotScaffoldError, match="--title 'Week 3': bare numeral '3'"):
        scaffold.new_book(tmp_path / "book", "Week 3")
    assert not (tmp_path / "book").exists()


@pytest.mark.parametrize(
    ("nav", "told"),
    [
        ("nav: [index.md, {More: [{A: sub/a.md}]}]\n", ["b.md"]),
        ("nav: [b.md, sub/a.md]\n", []),
        ("nav:\n", []),  # MkDocs then lists all pages
        ("", []),
    ],
)
def test_pages_that_no_nav_names_are_listed_unless_it_is_said_that_none_does(tmp_path, nav, told):
    left_out = "not_in_nav: |\n  /drafts/\nexclude_docs: '*.old.md'\n"
    (tmp_path / "mkdocs.yml").write_text(left_out + nav)
    pages = ["sub/a.md", "b.md", "drafts/c.md", "d.old.md"]
    found = [one.partition(": ") for one in site_checks.unlisted(tmp_path, pages)]
    assert [where for where, *_ in found] == [f"content/pages/{one}" for one in told]
    assert all(said.startswith("the nav: of mkdocs.yml does not name it;") for *_, said in found)


def test_keys_has_what_the_book_does_not_use_and_its_own_commands(book, capsys):
    assert main(["keys"]) == 0
    said = capsys.readouterr().out
    assert all(f"\n## {part}\n" in said for part in ("Draws", "Exhibit", "CostFile", "Ordering"))
    assert "`proofbook show RUN`" in said
    assert "python -m" not in said
    assert main(["keys", "measured_with"]) == 0
    assert [one for one in capsys.readouterr().out.splitlines() if one[:2] == "##"] == ["## Draws"]
    assert main(["keys", "mesured"]) == 2


def test_a_figure_of_what_ranks_record_is_refused_without_ranks(book, capsys):
    path = book / LEARN
    before = path.read_text().partition("    kind: growth")[0]
    drawn = "    kind: epochs\n    title: A\n    caption: B.\n    runs: [sorting.shuffled]\n"
    path.write_text(before + drawn)
    assert main(["check"]) == 2
    assert "sorting.shuffled has none; a growth draws any number" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("values = arranged(run.setings)", "failed in program at sorting.py:36: AttributeError: "),
        ("values = = 3", "sorting.py:36: SyntaxError: invalid syntax; correct this file"),
        ("raise SystemExit(3)", "died in program: exit code 3"),
        ("run.measure('it', float('nan'))", "sorting.py:36: ValueError: measure 'it' is nan"),
        ("run.measure('it', '5')", "sorting.py:36: ValueError: measure 'it' holds the text '5'"),
        ("run.measure('it', ['a'], unit='looks')", "measure 'it' holds the text 'a'; record a num"),
        ("run.measure('it', 'a'), run.measure('it', [])", "measure 'it' is there already"),
    ],
)
def test_a_run_that_fails_says_why_in_a_line(book, line, told):
    program = book / PROGRAM
    program.write_text(program.read_text().replace("values = arranged(run.settings)", line))
    try:
        said = how_it_ended(measure_run(find("sorting"), "shuffled"))
    except FixableError as error:
        said = str(error)
    assert told in said


def test_expressions_call_the_laws_of_the_book_and_none_of_ours(book, capsys):
    claims, laws = book / CLAIMS, book / "experiments/_laws.py"
    written, head = claims.read_text(), "def pairs(values):\n    return values "

    def checked(law, called="pairs(run.settings.num_values)"):
        laws.write_text(law)
        claims.write_text(written.replace("run.settings.num_pairs", called, 1))
        main(["check"])
        return "".join(capsys.readouterr())

    assert "7 of 7 claims hold" in checked(f"{head}* (values - 1) / 2\n")
    told = checked(f"{head}** 2 / 2\n").splitlines()[0]
    assert "sorting.yml:10:16: experiments/_laws.py:2: TypeError" in told
    assert "calculates with + - * / alone: what needs more is a property of Settings" in told
    assert "ring_bytes(…) is not known" in checked(f"{head}\n", "ring_bytes(4, 2)")
    assert "experiments/_laws.py:2: SyntaxError" in checked(f"{head}* (values - 1\n")
    assert "experiments/_laws.py:2: SystemExit: 3" in checked("import sys\nsys.exit(3)\n")


def test_a_changed_experiment_is_stale_until_it_is_measured_again(book, call, capsys):
    program = book / PROGRAM
    program.write_text(program.read_text().replace("num_values=16", "num_values=8"))
    forget_code()
    assert main(["check"]) == 1
    assert "sorting: the reference machine's trace is stale" in capsys.readouterr().err
    assert call(book, "proofbook", "run")[0] == 0
    assert measured(book)["descending_16"] == 28
    assert main(["check"]) == 0
    forget_code()  # which the next copy has as it was


def test_first_files_are_of_no_subject_and_the_guide_leads_to_pages_that_build(book, call, capsys):
    assert main(["new", "experiment", "hashing"]) == 0
    law = book / "content/claims/hashing.yml"
    held = law.read_text()
    law.unlink()
    assert main(["check"]) == 0
    assert "hashing: not measured yet; run `proofbook run hashing`" in capsys.readouterr().out
    law.write_text(held)
    assert call(book, "proofbook", "run")[0] == 0
    assert main(["new", "lesson", "hashes", "--from", "hashing"]) == 0
    written = [*book.glob("content/topics/hashes/*"), law, book / "experiments/hashing.py"]
    texts = {path.name: path.read_text() for path in written}
    assert {*texts} >= {"topic.yml", "quiz.yml", "worked.yml", "recall.yml"}
    assert not any("sort" in text or ".cache" in text for text in texts.values())
    capsys.readouterr()
    assert main(["check"]) == 0
    said = capsys.readouterr().out
    assert all(f"/{name}:" in said or "QUESTION of experiment hashing" in said for name in texts)
    assert said.count("TODO stands") == len(texts)
    assert main(["new", "lesson", "more", "--from", "hashin"]) == 2
    assert "no experiment 'hashin' (did you mean hashing?)" in capsys.readouterr().err
    guide = (book / "GUIDE.md").read_text()
    for fence in re.finditer(r"^(```|~~~)(\w+)\n(.*?)^\1$", guide, re.MULTILINE | re.DOTALL):
        if fence[2] in ("python", "yaml", "markdown"):
            path = book / re.findall(r"`([\w/-]+\.(?:py|yml|md))`", guide[: fence.start()])[-1]
            path.parent.mkdir(exist_ok=True)
            path.write_text(fence[3])
    assert call(book, "proofbook", "run")[0] == 0
    code, said = call(book, *BUILD)
    assert code == 0, said
    pages = book / "site/pages"
    worked, asked = (pages / f"topics/searching/{name}.md" for name in ("worked", "recall"))
    assert all(part in worked.read_text() for part in ("searching.linear", "<table", "<math"))
    assert all(f'"{drawn}",0,"values"' in asked.read_text() for drawn in ("200", "500", "2,000"))
    assert "searching-which" in (pages / "about-searching.md").read_text()
    not_named = said.partition('not included in the "nav" configuration:\n')[2].splitlines()
    assert [line for line in not_named if line.startswith("  - ")] == ["  - about-searching.md"]


def test_a_book_without_topics_and_with_folders_called_like_ours_builds(book, call):
    for name in ("topics", "claims"):
        shutil.rmtree(book / "content" / name)
    (book / "content" / "misconceptions.yml").unlink()
    for name in ("runners", "generator"):
        (book / name).mkdir()
        (book / name / "__init__.py").touch()
    code, said = call(book, *BUILD)
    assert code == 0, said
    assert not (book / "site/pages/retracted.md").exists()


def test_the_name_of_an_experiment_measures_all_of_its_runs_again():
    (wanted,) = requested(["too_small"], REFERENCE)
    assert list(wanted.paths) == [f"too_small.{run}" for run in wanted.trace.runs]
