"""A site that is not ours, with one line for the plugin: it asks, and nothing else moves."""

import re
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from proofbook.companions.guest import plugin
from proofbook.companions.guest.questions import Guest
from proofbook.generator.content.errors import ContentErrors
from proofbook.generator.content.handwritten import FENCE
from tests.audit.server import served
from tests.conftest import ROOT, mkdocs
from tests.processes import free_port, python
from tests.site.axe import violations
from tests.site.html_reading import pages, read

PORT = free_port()  # Material replaces pages by their addresses, which name it

THEMES = {
    "mkdocs": "{name: mkdocs, highlightjs: false}",
    "readthedocs": "{name: readthedocs, highlightjs: false}",
    "material": (
        "{name: material, font: false, palette: {scheme: slate}, features: [navigation.instant]}"
    ),
}
QUIZ = """\
items:
  - id: not-found
    stem: What does status 404 say?
    source: "[RFC 9110, section 15.5.5](https://www.rfc-editor.org/rfc/rfc9110#section-15.5.5)"
    options:
      - {text: Nothing is at this address., why: Perhaps for now., right: true}
      - {text: The server is gone., why: It would be silent., right: false}
      - {text: "You may not see it, [as here](index.md).", why: That is 403., right: false}
"""
FENCED = """
!!! note

    ```quiz
    - not-found
    ```

```quiz
id: minutes
kind: number
stem: A lecture takes {{ 2 }} of the hours of a day. How many minutes is that?
answer: 2 * 60
why: An hour has {{ 30 + 30 }}.
```

````text
```quiz
- an-example
```
````
"""


# One process builds them all, which loads MkDocs and the plugin once.
BUILD = """import sys; from mkdocs.__main__ import cli
for one in sys.argv[1:]: cli(["build", "--strict", "--config-file", one], standalone_mode=False)"""


def _sources(folder: Path, theme: str, *, is_guest: bool) -> Path:
    """What configures a site of two pages, with the plugin and two fences or without either."""
    (folder / "docs" / "sub").mkdir(parents=True)
    plugins = ["search", *["proofbook"] * is_guest]
    (folder / "mkdocs.yml").write_text(
        f"site_name: Theirs\nsite_url: http://127.0.0.1:{PORT}/\ntheme: {THEMES[theme]}\n"
        f"plugins: {plugins}\nmarkdown_extensions: [admonition]\n"
    )
    shown = FENCED if is_guest else "\n!!! note\n\n````text\n" + FENCED.split("````text\n")[1]
    (folder / "docs" / "index.md").write_text("# Home\n\n[On](sub/asks.md)\n\n```text\nquiz\n```\n")
    (folder / "docs" / "sub" / "asks.md").write_text(
        f"---\ntitle: Asks\n---\n# Asks\n\nText.\n{shown}"
    )
    (folder / "quizzes").mkdir()
    (folder / "quizzes" / "web.yml").write_text(QUIZ)
    return folder / "mkdocs.yml"


@pytest.fixture(scope="module")
def sites(tmp_path_factory):
    """The folder in which each theme has a site with the plugin and one without."""
    folder = tmp_path_factory.mktemp("guests")
    every = [
        _sources(folder / theme / name, theme, is_guest=name == "with")
        for theme in THEMES
        for name in ("with", "without")
    ]
    built_at = {"NO_MKDOCS_2_WARNING": "1", "SOURCE_DATE_EPOCH": "1700000000"}
    done = python("-c", BUILD, *map(str, every), **built_at)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(params=THEMES)
def theme(request):
    return request.param


@pytest.fixture
def address(sites, theme):
    """A site with the plugin over http, as `navigation.instant` wants it."""
    with served(sites / theme / "with" / "site", SimpleHTTPRequestHandler, PORT) as host:
        yield f"{host}/"


def test_nothing_of_the_site_moves_but_the_page_that_asks(sites, theme):
    before, after = (
        {path.relative_to(one): path.read_bytes() for path in one.rglob("*") if path.is_file()}
        for one in (sites / theme / "without" / "site", sites / theme / "with" / "site")
    )
    assert {path.as_posix() for path in after.keys() - before} == set(plugin.guest_assets())
    changed = {path.as_posix() for path, content in before.items() if after[path] != content}
    assert changed == {"sub/asks/index.html"}
    page = after[Path("sub/asks/index.html")].decode()
    assert page.count('class="pb-question"') == 2
    assert "<code" in page.partition("an-example")[0][-200:]  # what is an example stays one
    assert re.search(r'<details class="pb-details pb-answer"[^>]*(?<!open)>', page)


def test_every_address_has_an_allowed_scheme(sites, theme):
    every = [tag for page in pages(sites / theme / "with" / "site") for tag in read(page).tags]
    found = {urlsplit(tag.attributes.get(name, "")).scheme for tag in every
             for name in ("href", "src")}  # fmt: skip
    assert found <= {"", "https", "http"}  # the theme's own, and the site's


@pytest.mark.browser
def test_readers_answer_and_their_answers_stay(theme, address, open_page):
    page = open_page(address)
    page.evaluate("window.isSame = true")
    page.wait_for_load_state("networkidle")
    page.get_by_role("link", name="On", exact=True).click()
    chosen, typed = page.locator("#item-not-found"), page.locator("#item-minutes")
    chosen.get_by_role("radio", name="Nothing is at this address.").check()
    chosen.get_by_role("button", name="Check", exact=True).click()
    assert "Correct." in chosen.get_by_role("status").inner_text()
    assert chosen.get_by_role("link", name="RFC 9110").is_visible()
    typed.get_by_role("textbox").fill("119")
    typed.get_by_role("button", name="Check", exact=True).click()
    assert "That is too low" in typed.get_by_role("status").inner_text()
    assert violations(page, within=".pb-quiz") == []
    page.go_back()
    page.get_by_role("link", name="On", exact=True).click()
    again = chosen.get_by_role("status").filter(has_text="You answered this before. Correct.")
    again.wait_for()
    typed.get_by_role("status").filter(has_text="You have one more attempt").wait_for()
    assert bool(page.evaluate("window.isSame")) == (theme == "material")  # it is instant
    kept = page.evaluate("Object.keys(localStorage).filter(one => one.startsWith('proofbook:'))")
    assert sorted(kept) == ["proofbook:item:Theirs/minutes", "proofbook:item:Theirs/not-found"]


def test_no_rule_of_the_style_sheet_reaches_beyond_a_question():
    css = plugin.guest_assets()[f"{plugin.GUEST}/quiz.css"].decode()
    css = re.sub(r"@keyframes pb-\w+\s*\{(?:[^{}]*\{[^{}]*\})*\s*\}", "", css)
    within = r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"
    lists = [one for one in re.findall(r"([^{}]+)\{", css) if one[0] != "@"]
    lists = [re.sub(within, lambda part: part[0].replace(",", ""), one) for one in lists]
    selectors = [one for found in lists for one in found.split(",")]
    assert len(selectors) > 100
    assert [one for one in selectors if ".pb-" not in one] == []


def test_the_examples_of_the_documentation_can_be_asked(tmp_path):
    readme = (ROOT / "companions" / "guest" / "README.md").read_text()
    page = FENCE.search(readme)["yaml"]
    guest = Guest("Theirs", tmp_path, tmp_path / "quizzes")
    asked = [
        str(guest.html(guest.folio("docs/a.md"), page, fence.span("yaml"), 1))
        for fence in FENCE.finditer(page)
    ]
    assert [html.count('class="pb-question"') for html in asked] == [1, 1]
    stem = re.sub("<[^>]*>|\\s+", " ", asked[1])
    assert "How many seconds are 2 minutes?" in " ".join(stem.split())


ITEM = "id: one\nstem: What?\n"
NUMBER = f"{ITEM}kind: number\nwhy: So.\nanswer: "
OPTIONS = "options:\n- {text: a, why: b, right: true}\n- {text: c, why: d, right: false}\n"


@pytest.mark.parametrize(
    ("fence", "error"),
    [
        ("", "4:1: the fence asks nothing; write the id of an item"),
        ("- not-fond", "4:3: no item 'not-fond'; did you mean 'not-found'?"),
        (f"{ITEM}{OPTIONS}", "7:28: nothing shows this; compute it, or say under source:"),
        (f"{ITEM}source: here\n{OPTIONS}".replace("false", "true"), "4:5: item 'one' has 2 right"),
        (f"{NUMBER}'42'", "8:9: nothing shows this"),
        (f"{NUMBER}ddp.ddp.world_size", "8:9: ddp.ddp.world_size: unknown name 'ddp'; this site"),
        (f"{NUMBER}5 / 2", "8:9: the answer is no whole number; say in tolerance:"),
        (NUMBER.replace("So", "It is 3") + "1 + 2", "7:12: bare numeral '3'; print a value"),
        (NUMBER.replace("why", "wy") + "1 + 2", "7:1: unknown key 'wy'; did you mean 'why'?"),
        (NUMBER.replace("one", "not-found") + "1 + 2", "4:5: quizzes/web.yml has an item"),
        ("id: [", "5:1: not YAML: "),
    ],
)
def test_mistakes_of_a_fence_are_told_with_their_place(tmp_path, fence, error):
    (tmp_path / "quizzes").mkdir()
    (tmp_path / "quizzes" / "web.yml").write_text(QUIZ)
    guest, text = Guest("Theirs", tmp_path, tmp_path / "quizzes"), f"# A\n\n```quiz\n{fence}\n```\n"
    assert guest.errors == []
    with pytest.raises(ContentErrors) as told:
        guest.html(guest.folio("docs/a.md"), text, FENCE.search(text).span("yaml"), 1)
    assert str(told.value).startswith(f"docs/a.md:{error}")


def test_a_strict_build_refuses_addresses_that_execute(tmp_path):
    _sources(tmp_path / "site", "mkdocs", is_guest=True)
    fine = "[b](http://c.org) [c](/d) <img src='data:image/png;base64,AA'> `<a href='data:x'>`"
    for path, old, new in (
        ("docs/sub/asks.md", "Text.", f'{fine} <a href="java&#115;cript:a">a</a>'),
        ("docs/index.md", "[On]", "[a][b] [On]"),
        ("docs/index.md", "```text", "[b]: vbscript:a\n\n```text"),
        ("quizzes/web.yml", "index.md", "data&#58;text/html,a"),
    ):
        file = tmp_path / "site" / path
        file.write_text(file.read_text().replace(old, new, 1))
    done = mkdocs(tmp_path / "site", "build", "--strict", "--quiet")
    told = [line.split("proofbook: ")[1] for line in done.stderr.splitlines() if "link to" in line]
    end = "; links are relative, https or mailto"
    assert told == [
        f"quizzes/web.yml:8:47: link to 'data:text/html,a'{end}",
        f"docs/index.md:5:6: link to 'vbscript:a'{end}",
        f"docs/sub/asks.md:6:{len(fine) + 11}: link to 'javascript:a'{end}",
    ]
    assert done.returncode == 1


def test_a_strict_build_tells_every_mistake_and_ends_as_mkdocs_does(tmp_path):
    _sources(tmp_path / "site", "mkdocs", is_guest=True)
    for path, old, new in (
        ("docs/sub/asks.md", "2 * 60", "2 * sixty"), ("docs/sub/asks.md", "30 + 30", "30 +"),
        ("docs/sub/asks.md", "- not-found", "- not-fond"), ("quizzes/web.yml", "right: true", ""),
        ("docs/sub/asks.md", "example\n```\n````\n", "example\n```\n````\n\n``` quizz\n```\n"),
    ):  # fmt: skip
        file = tmp_path / "site" / path
        file.write_text(file.read_text().replace(old, new, 1))
    done = mkdocs(tmp_path / "site", "build", "--strict", "--quiet")
    told = [
        line.split("proofbook: ")[1] for line in done.stderr.splitlines() if "proofbook: " in line
    ]
    places = [
        "quizzes/web.yml:6:",
        "docs/sub/asks.md:28: fence 'quizz'; write ```quiz",
        "docs/sub/asks.md:18:9: 2 * sixty",
        "docs/sub/asks.md:19:21: 30 +",
    ]
    assert [one[: len(place)] for one, place in zip(told, places, strict=True)] == places
    assert done.returncode == 1
    assert "Aborted with 4 warnings in strict mode!" in done.stdout
