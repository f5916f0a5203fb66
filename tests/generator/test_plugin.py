"""MkDocs and Proofbook together: exit codes, files on disk, warnings, what `serve` survives."""

from __future__ import annotations

import base64
import errno
import hashlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from mkdocs.config import load_config

from generator.website import csp, publish
from generator.website.plugin import SURPRISES, ContentAbort
from tests.conftest import ROOT, mkdocs, wait_until
from tests.recorded import as_recorded
from tests.site.conftest import CONFIGURATION

pytestmark = pytest.mark.builds

BROKEN = ("stem:", "stme:")


@pytest.fixture
def project(tmp_path):
    """A project of its own: the frozen book, a mkdocs.yml, and the pages it is built into."""
    shutil.copytree(ROOT / "tests" / "book" / "content", tmp_path / "content")
    (tmp_path / "pages").mkdir()
    text = CONFIGURATION.format(root=ROOT).replace(f"{ROOT}/tests/book/content", "content")
    (tmp_path / "mkdocs.yml").write_text(text, encoding="utf-8")
    return tmp_path


def _edit(project: Path, file: str, old: str, new: str) -> None:
    path = project / "content" / file
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


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


def test_mistakes_are_printed_one_a_line_all_at_once_and_end_with_two(project):
    _edit(project, "topics/sharding/quiz.yml", *BROKEN)
    _edit(project, "topics/averaging/topic.yml", "title:", "titel:")
    done = mkdocs(project, "build", "--quiet")
    assert done.returncode == 2
    said = _said(done)
    assert any(
        line.startswith("content/topics/sharding/quiz.yml:3:5: unknown key 'stme'; did you mean")
        for line in said
    )
    assert any(line.startswith("content/topics/averaging/topic.yml:1:1: ") for line in said)
    assert all(line.startswith("content/") for line in said)


def test_a_strict_build_refuses_what_a_plain_one_shows_in_red(project):
    trace = project / "content" / "traces" / "reference-frozen" / "tiny_memory.json"
    document = json.loads(trace.read_text())
    document["runs"]["whole"]["expected_status"] = "out_of_memory"
    trace.write_text(json.dumps(document))
    plain, strict = mkdocs(project, "build"), mkdocs(project, "build", "--strict")
    made = mkdocs(project, "build", "--quiet", **{SURPRISES: "1"})  # as `make site` builds
    assert plain.returncode == 0
    assert strict.returncode == made.returncode == 1
    assert "tiny_memory.whole: ended completed, expected" in made.stderr
    assert "tiny_memory.whole: ended completed, expected out_of_memory" in strict.stderr
    assert "Traceback" not in strict.stderr
    assert "pb-surprise" in (project / "html" / "evidence.html").read_text(encoding="utf-8")


PAUSE = """\
import pathlib, time

def on_nav(nav, config, files):
    project = pathlib.Path(config.config_file_path).parent
    if not (project / "paused").exists():
        (project / "paused").touch()
        while not (project / "goes-on").exists():
            time.sleep(0.05)
    return nav
"""


def _building(project: Path, command: tuple[str, ...], log: str) -> subprocess.Popen[bytes]:
    with (project / log).open("w") as said:
        return subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=project,
            env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
            stdout=said,
            stderr=said,
        )


@pytest.mark.parametrize(
    ("command", "first_is"),
    [
        (("mkdocs", "build"), "let go on"),
        (("generator", "build", "--out", "pages"), "killed"),
    ],
    ids=["mkdocs", "generator"],
)
def test_of_two_builds_at_once_the_second_says_that_it_waits_and_both_are_whole(
    project, command, first_is
):
    (project / "pause.py").write_text(PAUSE, encoding="utf-8")
    with (project / "mkdocs.yml").open("a", encoding="utf-8") as file:
        file.write("hooks: [pause.py]\n")
    first = _building(project, ("mkdocs", "build"), "first.log")
    try:
        wait_until((project / "paused").exists, meanwhile=lambda: first.poll() is None)
        second = _building(project, command, "second.log")
        waiting = f"pages: waiting for another build (process {first.pid})"
        wait_until(
            lambda: waiting in (project / "second.log").read_text(encoding="utf-8"),
            meanwhile=lambda: second.poll() is None,
        )
        if first_is == "killed":
            first.kill()
        (project / "goes-on").touch()
        assert first.wait() == (-9 if first_is == "killed" else 0)
        assert second.wait() < 2  # 1: built, and a law of the frozen book does not hold
    finally:
        first.kill()
    for log in ("first.log", "second.log"):
        assert "Traceback" not in (project / log).read_text(encoding="utf-8")


def test_a_full_disk_ends_with_one_line_and_tears_no_file(project, monkeypatch):
    config = load_config(str(project / "mkdocs.yml"))
    plugin = config.plugins["proofbook"]
    plugin.on_config(config)
    plugin.on_pre_build(config=config)
    page = project / "pages" / "index.md"
    before = page.read_bytes()

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(page))

    _edit(project, "site.yml", "title:", "title: Another")
    monkeypatch.setattr(publish.os, "fdopen", full)
    with pytest.raises(ContentAbort) as raised:
        plugin.on_pre_build(config=config)
    assert raised.value.code == 2
    assert "No space left on device" in raised.value.format_message()
    assert page.read_bytes() == before
    assert not list((project / "pages").rglob(".index.md.*"))


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _text(serving: subprocess.Popen[bytes], address: str, wanted: str) -> str:
    """The page, once it holds what is wanted."""

    def page() -> str | None:
        try:
            with urllib.request.urlopen(address) as answer:
                seen: str = answer.read().decode()
        except OSError:
            return None
        return seen if wanted in seen else None

    return wait_until(page, meanwhile=lambda: serving.poll() is None)


def _measure_again(project, was, now):
    """Let a trace say another peak, as a rerun would."""
    path = project / "content" / "traces" / "reference-frozen" / "tiny_memory.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    for run in document["runs"].values():
        for rank in run["ranks"]:
            if rank["memory"] and rank["memory"]["peak_bytes"] == was:
                rank["memory"]["peak_bytes"] = now
        as_recorded(run)
    path.write_text(json.dumps(document), encoding="utf-8")


@pytest.mark.parametrize("options", [[], ["--dirty", "--no-strict"]], ids=["whole", "dirty"])
def test_serve_follows_edits_and_outlives_a_mistake(project, options):
    port = _free_port()
    address = f"http://127.0.0.1:{port}/topics/sharding/experiment.html"
    kept, lost = "topics/averaging/trace.html", "topics/gone.html"
    with (project / "content" / "glossary.yml").open("a", encoding="utf-8") as synonyms:
        synonyms.write(f"leads: {{{kept}: [mean], {lost}: [gone]}}\n")
    log = (project / "serve.log").open("w")
    serving = subprocess.Popen(
        [sys.executable, "-m", "mkdocs", "serve", *options, "--dev-addr", f"127.0.0.1:{port}"],
        cwd=project,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        stdout=log,
        stderr=log,
    )
    try:
        _text(serving, address, "is cut in two")
        file = "topics/sharding/experiment.yml"
        _edit(project, file, "is cut in two", "is cut in parts")
        _text(serving, address, "is cut in parts")
        _edit(project, file, "introduction:", "introductoin:")
        wait_until(
            lambda: "unknown key 'introductoin'" in (project / "serve.log").read_text(),
            meanwhile=lambda: serving.poll() is None,
        )
        assert serving.poll() is None
        said = (project / "serve.log").read_text()
        assert said.rindex(f"leads to '{lost}'") < said.rindex("unknown key")
        assert f"leads to '{kept}'" not in said
        shown = _text(serving, address, "pb-mistakes")
        assert "is cut in parts" in shown
        told = re.search(r'<pre class="pb-mistakes"[^>]*>(.*?)</pre>', shown, re.DOTALL)[1]
        assert re.search(r"topics/sharding/experiment\.yml:\d+:\d+: unknown key", told)
        _edit(project, file, "introductoin:", "introduction:")
        _edit(project, file, "is cut in parts", "is cut at last")
        assert "pb-mistakes" not in _text(serving, address, "is cut at last")
        other = address.replace("topics/sharding/experiment", "index")
        assert "pb-mistakes" not in _text(serving, other, "</article>")
        _measure_again(project, 164_000, 166_000)
        _text(serving, address, "162\u00a0KiB")
        assert "Traceback" not in (project / "serve.log").read_text()
    finally:
        serving.terminate()
        serving.wait(20)
        log.close()


def test_the_policy_allows_the_themes_inline_scripts_once_and_no_other(tmp_path):
    (tmp_path / "partials").mkdir()
    template = '<script>one(new URL("{{ base_url }}"))</script><script src="{{ a }}"></script>'
    (tmp_path / "partials" / "base.html").write_text(template)
    known = csp.scripts_of(tmp_path)
    own = '<script>one(new URL("../.."))</script>'
    others = '<SCRIPT>two()</SCRIPT><script data-src="a">one(new URL(""+f()))</script>'
    no_scripts = '<script src="a.js"></script><script type="application/json">{}</script>'
    html = f'<meta charset="utf-8">{own}{own}{others}{no_scripts}'
    assert csp.unknown_scripts(html, known) == ["two()", 'one(new URL(""+f()))']
    policed = csp.with_policy(html, known)
    assert policed.startswith('<meta charset="utf-8"><meta http-equiv="Content-Security-Policy"')
    digest = hashlib.sha256(b'one(new URL("../.."))').digest()
    assert f"script-src 'self' 'sha256-{base64.b64encode(digest).decode()}';" in policed
    with pytest.raises(ValueError, match="charset"):
        csp.with_policy("<html></html>", known)


UNSAFE = """\
def on_post_page(output, page, config):
    return output.replace("</article>", "<style>p {{}}</style><p onclick='a()'></article>")
"""


def test_what_a_pages_policy_blocks_is_said_in_one_line_with_page_and_cause(project):
    (project / "unsafe.py").write_text(UNSAFE, encoding="utf-8")
    (project / "pages" / "mine.md").write_text(
        "# Mine\n\n<script>unseen()</script>\n\n<img src='https://example.org/a.png'>\n"
    )
    (project / "mine" / "partials").mkdir(parents=True)
    (project / "mine" / "partials" / "footer.html").write_text("<script>footer()</script>")
    with (project / "mkdocs.yml").open("a", encoding="utf-8") as file:
        file.write("theme:\n  custom_dir: mine\nhooks: [unsafe.py]\n")
    done = mkdocs(project, "build")
    assert done.returncode == 2
    said = _said(done)
    assert "Traceback" not in done.stderr

    def line(part: str) -> str:
        (found,) = [one for one in said if part in one]
        return found

    assert line("unseen()").startswith("mine.html: 'unseen()' is an inline script")
    assert re.match(r"404\.html and \d+ more: 'footer\(\)' is an inline script", line("footer()"))
    assert "and" in line("<style>")
    assert "onclick" in line("<p onclick='a()'>")
    assert "mine.html: \"<img src='https://example.org/a.png'>\" is blocked" in line("<img")
    policed = (project / "html" / "mine.html").read_text(encoding="utf-8")
    digest = hashlib.sha256(b"unseen()").digest()
    assert "Content-Security-Policy" in policed
    assert base64.b64encode(digest).decode() not in policed
