"""How a book takes the place of another: whole, in one move, and not where nothing changed."""

import threading
from pathlib import Path

import pytest

from proofbook.generator.website import __main__ as website
from proofbook.generator.website import page_html
from proofbook.runners.system import files

PAGE = Path("site/html/index.html")


@pytest.fixture
def commands(tmp_path, monkeypatch):
    """A clone that is one file, and commands that do as they are told: exit code, whole or not."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "content").mkdir()
    (tmp_path / "content" / "lesson.yml").write_text("one")
    (tmp_path / "site" / "pages").mkdir(parents=True)
    told = {"runners": 0, "mkdocs": 0, "is_whole": True, "calls": []}

    def called(module, settings=None):
        told["calls"].append(module[0])
        if module[0] == "mkdocs":
            beside = Path(module[module.index("--site-dir") + 1])
            beside.mkdir(parents=True)
            (beside / "index.html").write_text(Path("content/lesson.yml").read_text())
            if told["is_whole"]:
                (beside / website.LAST).touch()
        return told[module[0]]

    monkeypatch.setattr(website, "_called", called)
    return told


def site():
    return website.main(["site"])


@pytest.mark.parametrize("code", [1, 2, 143])
def test_a_build_that_was_stopped_leaves_the_book_that_is_open(commands, code):
    assert website.main(["first"]) == 0
    Path("content/lesson.yml").write_text("other")
    commands |= {"mkdocs": code, "is_whole": False}
    assert site() == max(code, 2)
    assert PAGE.read_text() == "one"
    assert {path.name for path in PAGE.parent.parent.iterdir()} == {"pages", "html"}


def test_a_run_that_was_stopped_builds_nothing(commands):
    commands["runners"] = 130
    assert site() == 130
    assert commands["calls"] == ["runners"]


def test_a_book_with_surprises_is_shown_and_built_again(commands, capsys):
    commands["mkdocs"] = 1
    assert (site(), site()) == (1, 1)
    assert commands["calls"].count("mkdocs") == 2
    assert PAGE.read_text() == "one"
    assert "red" in capsys.readouterr().out


@pytest.mark.parametrize(
    "change",
    [
        lambda: Path("content/lesson.yml").write_text("two, and longer"),
        lambda: Path("content/other.yml").touch(),
        lambda: Path("site/pages/mine.md").write_text("by hand"),
        lambda: website.main(["pages"]),
    ],
)
def test_a_second_call_builds_only_where_something_has_changed(commands, change):
    assert (site(), site()) == (0, 0)
    assert commands["calls"] == ["runners", "mkdocs", "runners"]
    Path("content/.hidden").touch()
    change()
    before = commands["calls"].count("mkdocs")
    assert site() == 0
    assert commands["calls"].count("mkdocs") == before + 1


@pytest.mark.parametrize("address", ["", "https://example.org/"])
def test_publishing_without_an_address_says_in_one_line_how_to_give_it(commands, capsys, address):
    commands["mkdocs"] = 1  # no zip follows
    website.main(["publish", "--address", address])
    said = capsys.readouterr().err.splitlines()
    assert ["make publish SITE_URL=" in line for line in said] == ([] if address else [True])


def test_a_reader_finds_a_whole_book_at_any_moment(tmp_path):
    place, wrong, is_over = tmp_path / "html", [], threading.Event()

    def make(name, text):
        (tmp_path / name).mkdir()
        (tmp_path / name / "page").write_text(text)
        return tmp_path / name

    def read():
        while not is_over.is_set():
            if not place.is_dir():
                wrong.append("there is no book")

    files.put_in_place(make("new", "even"), place)
    reader = threading.Thread(target=read)
    reader.start()
    for number in range(200):
        files.put_in_place(make("new", "odd" if number % 2 else "even"), place)
    is_over.set()
    reader.join()
    assert not wrong
    assert [path.name for path in tmp_path.iterdir()] == ["html"]


def test_a_link_to_an_optional_page_that_is_not_there_is_its_text():
    text = """
    [Verify *it*](../verify.md#how), <b><a class="x" href="../verify/one.html">its</a></b> page,
    ![picture](../verify.png), [kept](../verify/kept.md), [other](../verified.md),
    <a href="learn.html">learn</a>, [elsewhere](https://example.org/verify.html).
    """
    files = {"topics/one.md": text.encode(), "verify/kept.md": b"", "a.css": b"[v](verify.md)"}
    left = page_html.without_absent(files, ["verify"])
    plain = text.replace("[Verify *it*](../verify.md#how)", "Verify *it*")
    plain = plain.replace('<a class="x" href="../verify/one.html">its</a>', "its")
    assert left == files | {"topics/one.md": plain.encode()}
    assert page_html.without_absent(files, []) == files
