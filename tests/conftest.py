"""What tests of every part share: the project's root, the built book, a browser.

The book is built once for a test session, whichever worker needs it first, from a copy of the tree
that holds the committed traces only, so that tests see the same pages on every machine and leave
`site/` alone. Files that take long come first, so that workers end together.
"""

from __future__ import annotations

import fcntl
import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from multiprocessing import forkserver
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from hypothesis import settings

from proofbook.runners.core.system.scratch import COMPILED
from proofbook.runners.system.book import enter_book
from tests.browser import find_browser
from tests.processes import ROOT, free_port, ran

enter_book(None)  # as each command does

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page, Request

BUILT_FROM = (
    "content",
    "generator",
    "runners",
    "companions",
    "mkdocs.yml",
    "README.md",
    "pyproject.toml",
)
SERVE = ("serve", "--dirty", "--no-strict", "--dev-addr")  # as `make serve` calls it
LOCAL_SCHEMES = ("file:", "data:", "blob:", "about:")
# What `_fixed_work` took on the reference machine while nothing else ran.
NOMINAL_SECONDS = 0.1
MOST_SLOWNESS = 4.0  # what hangs on a busy machine ends, too
# Fixtures that build the whole book; a test has this long for them, and one of `make soak`.
BUILDS, BUILD_SECONDS = {"built_site", "measured_book"}, 1200
BROWSER_SECONDS = 30  # Playwright's own patience
POLL_SECONDS = 0.05
# What a clone's first `make site` measures: what the README's commands name, and a shaped network.
FIRST_MEASURED = ("ddp", "communication")
FIRST_BOOK = "the book of the reference machine"
Found = TypeVar("Found")
FOUND = pytest.StashKey[dict[str, object]]()

# At the gate the same examples each time, whatever the machine; `make soak` searches further with
# a seed that it prints. What a search finds is written down as an `@example` of its test.
settings.register_profile("gate", max_examples=40, derandomize=True, deadline=None)
settings.register_profile("search", max_examples=5000, deadline=None, print_blob=True)
settings.load_profile("gate")

# A process has one forkserver, which the first test that needs it starts for all.
forkserver.set_forkserver_preload(["tests.preloaded"])
forkserver.set_forkserver_preload = lambda _: None


def _fixed_work() -> float:
    """Seconds that a process takes to start, calculate and end."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-S", "-c", "sum(range(2_000_000))"], check=True)
    return time.perf_counter() - start


@cache
def slowness() -> float:
    """How many times longer a fixed piece of work takes here and now; from 1 to `MOST_SLOWNESS`.

    Measured once for a session. Tests wait for events; only what somebody else's library insists
    on ending after a time, such as Playwright's waits, is multiplied by this.
    """
    slowest = max(_fixed_work() for _ in range(3))
    return min(max(1.0, slowest / NOMINAL_SECONDS), MOST_SLOWNESS)


def wait_until(
    happened: Callable[[], Found], meanwhile: Callable[[], bool] = lambda: True
) -> Found:
    """What `happened` gives, once it is true; however long that takes.

    Args:
        happened: is asked again and again.
        meanwhile: whether it can still happen: fails the test where it cannot. A wait in vain is
            ended by the time-out of the whole test.
    """
    while True:
        possible = meanwhile()  # asked first: what happened before the end is seen after it
        found = happened()
        if found:
            return found
        assert possible, "what the test waits for can no longer happen"
        time.sleep(POLL_SECONDS)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-goldens", action="store_true", help="write what pages say, to diff")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Give each test the longer, the slower the machine is as the session starts.

    Undo what a shell does to its background commands, and `nohup`: children ignore it too.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if config.option.timeout is None:  # nobody gave one in the command
        config.option.timeout = float(config.getini("timeout")) * slowness()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever looks at a site has it built first; what takes long starts early."""
    for item in items:
        if item.path.is_relative_to(ROOT / "tests" / "site"):
            item.add_marker("builds")
        own = item.get_closest_marker("timeout")
        is_long = BUILDS & _fixtures(item) or item.get_closest_marker("soak")
        seconds = own.args[0] if own else BUILD_SECONDS if is_long else None
        if seconds:  # it grows as that of others
            item.add_marker(pytest.mark.timeout(seconds * slowness()), append=False)
    items.sort(key=lambda item: _turn(item.path))


def _fixtures(item: pytest.Item) -> set[str]:
    return {*getattr(item, "fixturenames", ())}


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is loaded for tests is no garbage; to look for some takes a fifth of a collection."""
    gc.disable()
    result = yield
    gc.freeze()
    gc.enable()
    return result


def _turn(path: Path) -> int:
    """When a file has its turn: commands and sites first, then ranks, then what takes no time.

    The README's commands, which begin with a clone's first `make site`, take longest of all.
    """
    part = path.relative_to(ROOT / "tests").parts[0]
    return {"test_readme.py": -1, "site": 1, "soak": 1, "runners": 2, "generator": 3}.get(part, 0)


@pytest.fixture(scope="session")
def root() -> Path:
    """The project's root."""
    return ROOT


def not_of_the_reference(folder: str, names: list[str]) -> set[str]:
    """What `copytree` leaves out where a copy of the content has the reference machine alone."""
    is_traces = Path(folder) == ROOT / "content" / "traces"
    others = (one for one in names if is_traces and not one.startswith("reference-"))
    return {"__pycache__", "tries", *others}


def copy_of_the_book(into: Path) -> Path:
    """Copy what a build reads into `into`; of machines the reference."""
    for name in BUILT_FROM:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, into / name, ignore=not_of_the_reference)
        elif source.exists():
            shutil.copy2(source, into / name)
    return into


def mkdocs(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run MkDocs on the book in `folder`, as where torch is not installed."""
    return build_with("mkdocs", folder, *arguments, **variables)


def build_with(
    builder: str, folder: Path, *arguments: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run MkDocs, or what continues it, on the book in `folder`, as where torch is missing."""
    environment = {k: v for k, v in os.environ.items() if "PROOFBOOK" not in k}
    own = {"NO_MKDOCS_2_WARNING": "1", **without_torch(folder)}
    return ran([sys.executable, "-m", builder, *arguments], folder, environment | own | variables)


def without_torch(folder: Path) -> dict[str, str]:
    """Variables with which a process finds our code, and an error in place of torch."""
    no_torch = folder / ".no-torch" / "torch.py"
    no_torch.parent.mkdir(exist_ok=True)
    no_torch.write_text('raise ImportError("pages are made without torch")\n')
    return {"PYTHONPATH": f"{no_torch.parent}:{ROOT}"}


@contextmanager
def serving(folder: Path, page: str) -> Iterator[tuple[str, subprocess.Popen[bytes], Path]]:
    """MkDocs serving a book as `make serve` does, from its first page on.

    Gives the address, the process, and its log.
    """
    address, log = f"127.0.0.1:{free_port()}", folder / "serve.log"
    words = [sys.executable, "-m", "mkdocs", *SERVE]
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}

    def answers() -> bool:
        with suppress(OSError):
            return bool(fetched(f"http://{address}/{page}"))
        return False

    with (
        log.open("w") as said,
        subprocess.Popen(
            [*words, address], cwd=folder, env=quiet, stdout=said, stderr=said
        ) as process,
    ):
        try:
            wait_until(answers, meanwhile=lambda: process.poll() is None)
            yield f"http://{address}", process, log
        finally:
            process.terminate()


def fetched(address: str) -> bytes:
    """What an address answers."""
    with urllib.request.urlopen(address, timeout=60) as answer:
        content: bytes = answer.read()
        return content


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], Path]) -> Path:
    """What `make` leaves in a folder of this name; one worker of the session makes it for all."""
    temporary = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        temporary = temporary.parent
    folder, made = temporary / name, temporary / f"{name}.made"
    with made.open("a+") as note:
        fcntl.flock(note, fcntl.LOCK_EX)  # until the file is closed
        note.seek(0)
        if not (path := note.read()):
            shutil.rmtree(folder, ignore_errors=True)  # another worker's attempt
            path = str(make(folder))
            note.write(path)
    return Path(path)


def _real_site(folder: Path) -> Path:
    from tests.published import publish

    return publish(folder)


@pytest.fixture(scope="session")
def built_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the real book's HTML: published from the committed traces, once a session."""
    return made_once(tmp_path_factory, "real-book", _real_site)


def _measured_book(folder: Path) -> Path:
    from tests.clones import cloned, pasted

    clone = cloned(folder)
    done = pasted(f".venv/bin/python -m tests.left_out {' '.join(FIRST_MEASURED)}", clone)
    assert done.returncode == 0, done.stderr
    (clone / "site" / "html").mkdir()
    (clone / "site" / "html" / "index.html").write_text(FIRST_BOOK)
    done = pasted("make site SHORT=1", clone)
    said = {"code": done.returncode, "stdout": done.stdout, "stderr": done.stderr}
    folder.with_name("make-site.json").write_text(json.dumps(said))
    return clone


@pytest.fixture(scope="session")
def measured_book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh clone after its first `make site`, which measured two experiments, shortened.

    Of the book that can be opened meanwhile a line is there, as if it had been built: `built_site`
    is the same. `make soak` builds it, and measures all. `make-site.json` beside the clone says how
    the command ended.
    """
    return made_once(tmp_path_factory, "measured-book", _measured_book)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium or Chrome, headless, once a session."""
    from playwright.sync_api import sync_playwright

    path = find_browser()
    assert path, "no Chromium or Chrome on PATH; `make browser` finds or installs one"
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox"], timeout=1000 * BROWSER_SECONDS * slowness()
        )
        yield started
        started.close()


def listen(page: Page, complaints: list[str]) -> None:
    """Write down every console error or warning, exception, and request to another host."""

    def on_console(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            complaints.append(f"console {message.type}: {message.text}")

    def on_request(request: Request) -> None:
        if not request.url.startswith((*LOCAL_SCHEMES, "http://127.0.0.1:")):
            complaints.append(f"request to another host: {request.url}")

    page.on("console", on_console)
    page.on("pageerror", lambda error: complaints.append(f"exception: {error}"))
    page.on("request", on_request)


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Open a file or an address in a fresh context; keyword arguments are Playwright's own.

    At the end of the test every page opened must have stayed quiet: no console error or warning,
    no exception, no request to another host.
    """
    complaints: list[str] = []
    contexts = []

    def opened(where: Path | str, **options: Any) -> Page:
        context = browser.new_context(**options)
        context.set_default_timeout(1000 * BROWSER_SECONDS * slowness())
        contexts.append(context)
        page = context.new_page()
        listen(page, complaints)
        page.goto(where.as_uri() if isinstance(where, Path) else where)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not complaints, "\n".join(complaints)


def _shared() -> dict[str, object]:
    """What the tests of a process share beside files, and each has to leave as it found it."""
    found: dict[str, object] = dict(os.environ) | {
        "the current folder": Path.cwd(),
        # What torch loads of setuptools adds a folder of its own.
        "sys.path": [one for one in sys.path if not one.endswith("_vendor")],
        "SIGINT": signal.getsignal(signal.SIGINT),
        "SIGTERM": signal.getsignal(signal.SIGTERM),
    }
    if torch := sys.modules.get("torch"):
        found |= {
            "torch's threads": torch.get_num_threads(),
            "torch's type": torch.get_default_dtype(),
            "torch's gradients": torch.is_grad_enabled(),
            "oneDNN": torch.backends.mkldnn.enabled,
        }
    return found


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    item.stash[FOUND] = _shared()
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """No test changes what the next one finds, but for where the session's launcher compiles."""
    result = yield
    before, after = item.stash[FOUND], _shared()
    names = (before.keys() | os.environ.keys()) - {"PYTEST_CURRENT_TEST", COMPILED}
    changed = {name: after.get(name) for name in names if before.get(name) != after.get(name)}
    assert not changed, "the test or a fixture of it left these to the next test"
    return result
