"""The book on disk: every file that a site is built from, written only where its bytes changed.

A book in; `site/pages/` out, which then holds the pages, the assets and the raw traces. What the
generator wrote and no book makes any more is deleted; what anybody else put there stays. A
published book shows the machines of the current commit, and offers its sources.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rcssmin import cssmin  # type: ignore[import-untyped]
from rjsmin import jsmin  # type: ignore[import-untyped]

from proofbook.generator.content import handwritten, images, listed_code
from proofbook.generator.content.book import Book
from proofbook.generator.content.errors import ContentError, ContentErrors
from proofbook.generator.content.shelf import REFERENCE
from proofbook.generator.pages.facts import JOINT
from proofbook.generator.pages.press import EVERYTHING, TAKEN, Press
from proofbook.generator.printing.folio import interface_words
from proofbook.runners.system.files import write_text
from proofbook.runners.system.kinds import kinds

ASSETS = Path(__file__).resolve().parent / "assets"
STYLE = "assets/proofbook.css"
STYLES = ASSETS / "styles"
# The style sheet, a file for each component; of two equal selectors the later one wins.
COMPONENTS = (
    "palette", "frame", "shared", "text", "values", "tables", "figures", "drawings", "items",
    "lesson", "evidence", "system", "print",
)  # fmt: skip
# Scripts that begin with the words that they say, and the key of these in ui.yml.
SPOKEN = {"proofbook": "words", "sources": "term", "values": "source"}
PICTURE = "assets/picture.png"  # what a shared link shows: content/picture.png
PICTURES = "assets/pictures"  # of pages with a part of their path as name: content/pictures/ddp.png
SOURCES = "proofbook-sources.zip"  # what a published book offers for download: its commit
NOTE = ".written"  # names what the generator wrote; MkDocs leaves out files that begin with a dot
LOCK = ".lock"
OCCUPIED = (
    "a page of the book belongs here, and this file was written by hand; move it to "
    "content/pages under another name, or delete it"
)


def site_files(
    book: Book, content: Path, press: Press, under: tuple[str, ...] = EVERYTHING
) -> dict[str, bytes]:
    """`{path in site/pages/: bytes}`: pages with their images, assets, programs, raw traces.

    Of the pages, those are printed anew whose paths begin with `under`.

    Raises:
        ContentErrors: a text of the book has a mistake.
    """
    files = press.printed(book, under)
    files.update(press.assets)
    files.update(assets())
    files.update(_joint(files, press))
    files.update(_programs(book))
    traces = book.machines.items()
    copied = [f"traces/{machine}/{name}.json" for machine, own in traces for name in own.traces]
    copied += [trace.file for trace in book.traces.values() if trace.nature]
    copied += [name for document in book.documents for name in images.files(document)]
    files |= {name: (content / name).read_bytes() for name in copied}
    if (content / "picture.png").is_file():
        files[PICTURE] = (content / "picture.png").read_bytes()
    for path in (content / "pictures").glob("*.png"):
        files[f"{PICTURES}/{path.name}"] = path.read_bytes()
    folder = content / "pages"
    for path in (path for path in handwritten.files(folder) if path.suffix != ".md"):
        name = path.relative_to(folder).as_posix()
        if name in files:
            at = path.relative_to(content.parent).as_posix()
            raise ContentErrors([ContentError(at, 0, 0, f"{TAKEN}; choose another")])
        files[name] = path.read_bytes()
    return files


def assets() -> dict[str, bytes]:
    """What pages load, by path under the site's root."""
    folders = [ASSETS, *(kind.folder / "assets" for kind in kinds())]
    files = {
        f"assets/{path.relative_to(folder).as_posix()}": asset(path)
        for folder in folders
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.parent != STYLES
    }
    files[STYLE] = style()
    spoken = SPOKEN | {script: key for kind in kinds() for script, key in kind.spoken.items()}
    for script, key in spoken.items():
        name = f"assets/{script}.js"
        files[name] = words_for_scripts(key, interface_words()[key]) + files[name]
    return files


def _joint(files: Mapping[str, bytes], press: Press) -> Iterator[tuple[str, bytes]]:
    """Yield each file that joins several scripts of a page, which compresses better."""
    for name in sorted({name for page in press.pages.values() for name in page.scripts}):
        if JOINT in name:
            parts = (files[f"assets/{part}.js"] for part in name.split(JOINT))
            yield f"assets/{name}.js", b"".join(parts)


def _programs(book: Book) -> dict[str, bytes]:
    """The programs that pages offer for download, by path under the site's root."""
    fields = (field for document in book.documents for field in document.fields)
    of_kinds = (kind.take(kind.programs)(book) for kind in kinds() if kind.programs)
    paths = {path for programs in of_kinds for path in programs}
    paths |= {field.text for field in fields if field.path[-1] == "path"}
    files = {name: path for path in sorted(paths) if (name := listed_code.download_path(path))}
    return {name: listed_code.text(book.root, path).encode() for name, path in files.items()}


def asset(path: Path) -> bytes:
    """A file as pages load it, minified; a script in a function of its own, which takes `book`."""
    if path.suffix == ".js":
        script = jsmin(path.read_text("utf-8"))
        return f'(function(book){{"use strict";{script}\n}})(window.proofbook||={{}});\n'.encode()
    return cssmin(path.read_text("utf-8")).encode() if path.suffix == ".css" else path.read_bytes()


def style(components: Iterable[str] = COMPONENTS) -> bytes:
    """The components as one style sheet."""
    return b"".join(asset(STYLES / f"{name}.css") for name in components)


def words_for_scripts(name: str, words: Mapping[str, object]) -> bytes:
    """A line of JavaScript that defines words of the interface under `window.proofbook`."""
    text = json.dumps(words, ensure_ascii=True, sort_keys=True, separators=(",", ":"))
    text = text.replace("<", r"\u003c")
    return f"(window.proofbook=window.proofbook||{{}}).{name}={text};\n".encode()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Context manager: lock the folder of pages, made where missing, for one build at a time.

    A second build waits here, before MkDocs empties the folder of the site.
    """
    import fcntl  # which Windows lacks, where a site may ask questions

    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("a") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.stderr.write(f"{os.path.relpath(folder)}: waiting until another build has ended\n")
            fcntl.flock(held, fcntl.LOCK_EX)
        yield


def sync_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write the `files` whose bytes changed; delete files of earlier builds not in `files`.

    The list `.written` in the folder names what the generator wrote: nothing else is ever
    overwritten or deleted.

    Raises:
        ContentErrors: a file that somebody else wrote stands where another should go; nothing was
            written.
        OSError: the disk refused; the next build writes the rest.
    """
    note = folder / NOTE
    before = set(note.read_text(encoding="utf-8").splitlines() if note.is_file() else ())
    for name in sorted(files.keys() - before):
        path = folder / name
        if path.is_file() and path.read_bytes() != files[name]:
            raise ContentErrors([ContentError(os.path.relpath(path), 0, 0, OCCUPIED)])
    for name in before - files.keys():
        (folder / name).unlink(missing_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    write_text(note, "".join(f"{name}\n" for name in sorted(files)))  # whole, or as it was
    for name, content in files.items():
        path = folder / name
        if not path.is_file() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


# --- what the current commit holds


def committed_machines(content: Path) -> frozenset[str]:
    """Names of the folders of `traces/` with machine.json in HEAD; without git, the reference's."""
    traces = content / "traces"
    held = _git(traces, "ls-tree", "-r", "-z", "--name-only", "HEAD", "./")
    if held is None:
        return frozenset(path.name for path in traces.glob(REFERENCE))
    paths = map(Path, held.decode().split("\0"))
    return frozenset(path.parent.as_posix() for path in paths if path.name == "machine.json")


def uncommitted(content: Path) -> list[str]:
    """Sorted paths below `content` of traces, plans, reports that differ from HEAD or are new."""
    folders = [f"traces/{name}" for name in committed_machines(content)]
    folders += [folder for kind in kinds() for folder in kind.folders]
    read = "--", *(f"{folder}/*.json" for folder in folders)
    edited = _git(content, "diff", "-z", "--relative", "--name-only", "HEAD", *read) or b""
    new = _git(content, "ls-files", "-z", "--others", *read) or b""  # also what git ignores
    return sorted(filter(None, (edited + new).decode().split("\0")))


def committed_sources(content: Path) -> bytes:
    """The files of the commit as a zip; empty where there is no repository."""
    return _git(content.parent, "archive", "--format=zip", "--prefix=proofbook/", "HEAD") or b""


def _git(folder: Path, *command: str) -> bytes | None:
    """The output of a git command; None where there is no repository."""
    try:
        return subprocess.run(["git", *command], cwd=folder, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
