"""The book builds, and every number, law and key of it stands."""

import subprocess
import sys
from pathlib import Path

BOOK = Path(__file__).parent.parent


def test_the_book_builds_without_a_warning(tmp_path):
    words = [sys.executable, "-P", "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path]
    done = subprocess.run(words, cwd=BOOK, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "index.html").exists()
