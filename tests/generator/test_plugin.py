"""MkDocs and Proofbook together: exit codes, files on disk, warnings, what `serve` survives."""

import os
import re
import resource
import subprocess
import sys
from contextlib import suppress

import pytest

from proofbook.generator.website import publish
from proofbook.generator.website.plugin import SURPRISES
from tests.conftest import SERVE, fetched, mkdocs, serving, wait_until
from tests.generator.conftest import Copy
from tests.processes import free_port
from tests.site.conftest import own_book

pytestmark = pytest.mark.builds


@pytest.fixture
def project(tmp_path):
    """A project of its own, with the frozen book."""
    return own_book(tmp_path)


def _said(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]


def test_a_page_put_where_the_book_has_one_ends_the_build_in_one_line_and_stays(project):
    mine = project / "pages" / "evidence.md"
    mine.write_text("# My own evidence\n")
    done = mkdocs(project, "build")
    assert done.returncode == 2
    line = next(line for line in _said(done) if "pages/evidence.md" in line)
    assert line.startswith("pages/evidence.md: a page of the book belongs here")
    assert "move it to content/pages" in line
    assert "Traceback" not in done.stderr
    assert mine.read_text() == "# My own evidence\n"
    assert sorted(path.name for path in (project / "pages").rglob("[!.]*")) == ["evidence.md"]


def test_a_build_waits_until_another_has_ended_and_says_so(project):
    """`make pages` beside `make serve`: they write the same folder of pages."""
    log, quiet = project / "build.log", os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    with publish.locked(project / "pages"), log.open("w") as said:
        command = [sys.executable, "-m", "mkdocs", "build", "--quiet"]
        build = subprocess.Popen(command, cwd=project, env=quiet, stderr=said)
        wait_until(log.read_text, meanwhile=lambda: build.poll() is None)
        assert not (project / "html").exists()
    assert build.wait() == 0, log.read_text()
    assert log.read_text() == "pages: waiting until another build has ended\n"
    assert (project / "html" / "index.html").is_file()


def test_mistakes_are_printed_one_a_line_all_at_once_and_end_with_two(project):
    """Also where `serve` begins with them."""
    copy = Copy(project / "content")
    copy.edit("topics/sharding/quiz.yml", "stem:", "stme:")
    copy.edit("topics/averaging/topic.yml", "title:", "titel:")
    for command in (["build", "--quiet"], [*SERVE, f"127.0.0.1:{free_port()}"]):
        done = mkdocs(project, *command)
        assert done.returncode == 2
        told = [line for line in _said(done) if line.startswith("content/")]
        assert told[0].startswith("content/topics/averaging/topic.yml:1:1: ")
        assert told[1].startswith("content/topics/sharding/quiz.yml:3:5: unknown key 'stme'; did")
        assert "Traceback" not in done.stderr


def test_a_disk_that_refuses_ends_a_build_in_one_line_and_the_next_is_whole(project):
    """No file may grow beyond a size, which fails as a full disk does: without its name."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    for kilobytes, folder in ((4, "pages"), (80, "html")):
        resource.setrlimit(resource.RLIMIT_FSIZE, (kilobytes * 1024, before[1]))
        try:
            done = mkdocs(project, "build", "--quiet")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        (line,) = _said(done)
        assert re.fullmatch(f"{project}/{folder}.*: File too large; build again", line)
        assert done.returncode == 2
    Copy(project / "content").edit("site.yml", "title: A tiny book", "title: A small book")
    done = mkdocs(project, "build", "--quiet")
    assert (done.returncode, "A small book" in (project / "html/index.html").read_text()) == (0, 1)


def test_a_strict_build_refuses_what_a_plain_one_shows_in_red(project):
    copy = Copy(project / "content")
    copy.change_run("tiny_memory.whole", expected_status="out_of_memory")
    copy.edit("topics/sharding/experiment.yml", "averaging/trace.html", "averaging/trail.html")
    copy.edit(
        "topics/averaging/learn.yml", "keep equal replicas equal", "[keep](worked.html#none) them"
    )
    plain, strict = mkdocs(project, "build"), mkdocs(project, "build", "--strict", "--quiet")
    made = mkdocs(project, "build", "--quiet", **{SURPRISES: "1"})  # as `make site` builds
    assert plain.returncode == 0
    assert strict.returncode == made.returncode == 1
    assert "tiny_memory.whole: ended completed, expected" in made.stderr
    assert "tiny_memory.whole: ended completed, expected out_of_memory" in strict.stderr
    leads = "topics/sharding/experiment.html: a link leads to '../averaging/trail.html': the site"
    assert leads in strict.stderr
    assert "'worked.html#none': that page has no such place" in strict.stderr
    assert strict.stderr.count("a link leads to") == 3  # the takeaway stands in Summary, too
    assert "Traceback" not in strict.stderr
    assert "pb-surprise" in (project / "html" / "evidence.html").read_text(encoding="utf-8")


def test_serve_follows_edits_and_outlives_a_mistake(project):
    copy, lesson = Copy(project / "content"), "topics/sharding/experiment"
    with serving(project, f"{lesson}.html") as (root, process, log):
        address = f"{root}/{lesson}.html"

        def lives():
            return process.poll() is None

        def text(address, wanted):
            """The page, once it holds what is wanted."""

            def page():
                with suppress(OSError):
                    seen = fetched(address).decode()
                    return seen if wanted in seen else None

            return wait_until(page, lives)

        text(address, "is cut in two")
        file = "topics/sharding/experiment.yml"
        copy.edit(file, "is cut in two", "is cut in parts")
        text(address, "is cut in parts")
        copy.edit(file, "introduction:", "introductoin:")
        wait_until(lambda: "unknown key 'introductoin'" in log.read_text(), lives)
        shown = text(address, "pb-mistakes")
        assert "is cut in parts" in shown
        told = re.search(r'<pre class="pb-mistakes"[^>]*>(.*?)</pre>', shown, re.DOTALL)[1]
        assert re.search(r"topics/sharding/experiment\.yml:\d+:\d+: unknown key", told)
        copy.edit(file, "introductoin:", "introduction:")
        copy.edit(file, "is cut in parts", "is cut at last")
        assert "pb-mistakes" not in text(address, "is cut at last")
        other = address.replace("topics/sharding/experiment", "index")
        assert "pb-mistakes" not in text(other, "</article>")
        ranks = copy.recorded("tiny_memory.whole")["ranks"]
        ranks[0]["memory"]["peak_bytes"] = 166_000  # as a rerun might
        copy.change_run("tiny_memory.whole", ranks=ranks)
        text(address, "162\u00a0KiB")
        assert "Traceback" not in log.read_text()
