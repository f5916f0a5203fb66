"""The frozen book: two topics over two tiny hand-made traces, whole or copied to be broken."""

import json
import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest

from proofbook.generator.checks.content_checks import check
from proofbook.generator.content.errors import ContentErrors
from proofbook.generator.content.reading import load
from proofbook.generator.pages.press import Press
from proofbook.generator.values.evaluation import Evidence
from proofbook.generator.website.publish import committed_machines
from tests.recorded import as_recorded, write

FROZEN = Path(__file__).parents[1] / "book" / "content"
CONTENT = Path(__file__).parents[2] / "content"


def fresh(_):
    """The frozen traces have no code, and what edits do to the real ones is another test's."""
    return False


def render(book):
    """Every page of a book as Markdown, by its path under the site's root."""
    return {path: content.decode() for path, content in Press().printed(book).items()}


@pytest.fixture(scope="session")
def book():
    return load(FROZEN, "reference-frozen", is_stale=fresh)


@pytest.fixture(scope="session")
def rendered(book):
    return render(book)


@pytest.fixture(scope="session")
def real():
    """The real book as its reference machine shows it, whatever this machine has measured."""
    (folder,) = (path.parent for path in CONTENT.glob("traces/reference-*/machine.json"))
    return load(CONTENT, folder.name, is_stale=fresh, only=committed_machines(CONTENT))


@pytest.fixture
def evidence(book):
    return Evidence(book)


class Copy:
    """A copy of the frozen book that a test may break."""

    def __init__(self, content):
        self.content = content

    def edit(self, file, old, new):
        path = self.content / file
        text = path.read_text(encoding="utf-8")
        assert old in text, f"{file} does not hold {old!r}"
        path.write_text(text.replace(old, new, 1), encoding="utf-8")

    def append(self, file, text):
        with (self.content / file).open("a", encoding="utf-8") as end:
            end.write(text)

    def trace(self, experiment, machine="reference-frozen"):
        return self.content / "traces" / machine / f"{experiment}.json"

    def recorded(self, path, machine="reference-frozen"):
        """A run as a trace's JSON holds it."""
        experiment, run = path.split(".")
        return json.loads(self.trace(experiment, machine).read_text())["runs"][run]

    @contextmanager
    def rewritten(self, experiment, machine="reference-frozen"):
        """A trace's JSON, which is written again."""
        file = self.trace(experiment, machine)
        document = json.loads(file.read_text())
        yield document
        write(file, document)

    def change_run(self, path, machine="reference-frozen", **fields):
        """Overwrite fields of a run in a trace's JSON, and what follows from them."""
        experiment, run = path.split(".")
        with self.rewritten(experiment, machine) as trace:
            trace["runs"][run].update(fields)
            as_recorded(trace["runs"][run])

    def remove_run(self, path, machine="reference-frozen"):
        """Let a machine lack a run."""
        experiment, run = path.split(".")
        with self.rewritten(experiment, machine) as trace:
            del trace["runs"][run]

    def add_machine(self, name, *experiments):
        """A second machine that has measured some experiments, and is the one shown."""
        reference = self.content / "traces" / "reference-frozen"
        folder = self.content / "traces" / name
        folder.mkdir(parents=True)
        for file in ("machine", *experiments):
            text = (reference / f"{file}.json").read_text()
            write(folder / f"{file}.json", json.loads(text.replace("reference-frozen", name)))
        (self.content / "traces" / "this-machine").write_text(f"{name}\n")

    def load(self, machine=None, is_stale=fresh):
        return load(self.content, machine, is_stale)

    def strict(self, is_stale=fresh):
        """The book as `make pages` builds it, where this machine's traces are not committed."""
        reference = "reference-frozen"
        return load(self.content, reference, is_stale, only={reference}, with_new=True)

    def errors(self):
        """Every error of the copy as text, whether it shows while reading or while checking."""
        try:
            return [str(error) for error in check(Evidence(self.load()))]
        except ContentErrors as errors:
            return [str(error) for error in errors.errors]


@pytest.fixture
def copy(tmp_path, monkeypatch):
    monkeypatch.delenv("PROOFBOOK_MACHINE", raising=False)
    shutil.copytree(FROZEN, tmp_path / "content")
    return Copy(tmp_path / "content")
