"""The README is true: its tree exists, its commands run as written. So are the guides' links.

Commands run in a fresh clone that shares this environment, after its first `make site`.
"""

import json
import re

import pytest

from proofbook.runners.commands.reproduce import requested
from proofbook.runners.system.kinds import Kind
from tests.clones import pasted
from tests.conftest import ROOT
from tests.sampled import REFERENCE

README = (ROOT / "README.md").read_text(encoding="utf-8")
GUIDES = ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", *(
    path.relative_to(ROOT).as_posix()
    for pattern in ("*/README.md", "companions/*/README.md", "runners/*/README.md")
    for path in sorted(ROOT.glob(pattern))
))  # fmt: skip
ONE_SCREEN = 70
MOST_WORDS = 5000  # of what runners and generator say of themselves together
# The first has made the clone, the second runs this test; the others are for `make soak`.
REPRODUCED = "ddp.ddp.status"
REPRODUCE = f".venv/bin/python -m runners reproduce {REPRODUCED}"
NOT_HERE = {"make site", "make test", ".venv/bin/python -m runners run --full", REPRODUCE}


def _commands():
    blocks = re.findall(r"^```sh\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    return [line for line in lines if line and line not in NOT_HERE]


def _tree():
    """The paths of the README's tree, each below the folders it is indented under."""
    block = re.search(r"^```text\n(runners/.*?)^```", README, re.MULTILINE | re.DOTALL)
    paths, folders = [], [""]
    for line in block.group(1).splitlines():
        names = re.match(r"( *)((?:\S+  ?)+?) {2,}\S", f"{line}")
        depth = len(names.group(1)) // 2
        paths += ["".join(folders[: depth + 1]) + name for name in names.group(2).split()]
        folders[depth + 1 :] = [names.group(2).split()[0]]
    return paths


def test_the_tree_shows_what_is_there():
    shown = _tree()
    assert len(shown) > 10
    assert [path for path in shown if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("guide", GUIDES)
def test_links_pictures_and_modules_that_a_guide_names_are_there(guide):
    """A module is named from the root, or from the part that the sentence is about."""
    text, folder = (ROOT / guide).read_text(encoding="utf-8"), (ROOT / guide).parent
    links = re.findall(r"\]\(([^)#:]+)[#)]", re.sub(r"(?ms)^```.*?^```", "", text))
    modules = re.findall(r"`([a-z_]+/[a-z_/-]*(?:[a-z_-]+\.(?:py|js|j2|yml)|/))`", text)
    parts = (ROOT, folder, ROOT / "generator", ROOT / "runners")
    lost = [one for one in modules if not any((part / one).exists() for part in parts)]
    assert lost + [one for one in links if not (folder / one).exists()] == []


def test_the_guides_of_both_packages_stay_short():
    texts = ((ROOT / part / "README.md").read_text() for part in ("runners", "generator"))
    assert sum(len(text.split()) for text in texts) <= MOST_WORDS


def test_the_architecture_is_one_screen_and_names_all_that_a_kind_may_declare():
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= ONE_SCREEN
    assert [name for name in Kind._fields if f"`{name}`" not in text] == ["package"]


@pytest.mark.parametrize("guide", GUIDES)
def test_links_of_a_guide_to_a_section_lead_to_one(guide):
    text, folder = (ROOT / guide).read_text(encoding="utf-8"), (ROOT / guide).parent
    for path, anchor in re.findall(r"\]\(([^)#:]*\.md|)#([^)]+)\)", text):
        target = (folder / path).read_text(encoding="utf-8") if path else text
        titles = re.findall(r"^##+ (.*)", target, re.MULTILINE)
        slugs = [re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles]
        assert anchor in slugs, (path, anchor)


def test_every_make_command_it_names_exists():
    named = set(re.findall(r"(?:^|`)make ([a-z]+)", README, re.MULTILINE))
    known = set(re.findall(r"^([a-z]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {"site", "test", "serve"} <= named <= known


@pytest.mark.ranks
@pytest.mark.parametrize("command", _commands())
def test_the_command_runs_as_written(measured_book, command):
    done = pasted(command, measured_book, PYTHONPATH="")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_value_that_it_measures_again_is_in_the_book():
    """At the gate `test_reproduce.py` measures cheaper ones by the same command."""
    assert f"\n{REPRODUCE}\n" in README
    (wanted,) = requested([REPRODUCED], REFERENCE)
    assert [*wanted.paths] == [REPRODUCED]


@pytest.fixture(scope="session")
def first_site(measured_book):
    """How the first `make site` of the clone ended."""
    return json.loads(measured_book.with_name("make-site.json").read_text())


@pytest.mark.ranks
def test_runs_of_a_fresh_clone_end_as_declared_and_laws_hold(first_site):
    assert first_site["code"] == 0, first_site["stdout"] + first_site["stderr"]
    assert re.search(r"\b0 surprises", first_site["stdout"])
    said = first_site["stdout"] + first_site["stderr"]
    assert re.search(r"^  \d+ experiments, which last took \d+\.\d min$", said, re.MULTILINE)


@pytest.mark.ranks
def test_make_site_builds_the_page_that_it_says_to_open(first_site, measured_book):
    page = measured_book / "site" / "html" / "index.html"
    assert first_site["stdout"].splitlines()[-1] == f"Open {page}"
    assert "<title>" in page.read_text(encoding="utf-8")  # no longer `FIRST_BOOK`
