"""Pages printed by several processes are those that one prints, and so are their mistakes."""

import subprocess
import sys

import pytest

from generator.content.errors import ContentErrors
from generator.pages import hands
from generator.pages.page import printed
from generator.pages.press import Press
from tests.conftest import ROOT

TWO_AT_WORK = """
import time
from generator.pages import hands

def work():
    print("at work", flush=True)
    time.sleep(86400)

list(hands.done([work] * hands.FEWEST, 2))
"""


@pytest.fixture
def several(monkeypatch):
    """A press of two processes, each of which takes even a single sheet."""
    monkeypatch.setattr(hands, "FEWEST", 2)
    monkeypatch.setattr(hands, "AT_A_TIME", 1)
    return Press(2)


def test_several_processes_print_what_one_prints(book, several):
    assert several.printed(book) == Press().printed(book)


def test_errors_found_in_another_process_arrive_whole(book, monkeypatch, several):
    def refused(sheet, judged):
        raise ContentErrors([hands.ContentError(f"content/{sheet.path}", 3, 7, "is wrong")])

    monkeypatch.setattr(hands, "printed", refused)
    with pytest.raises(ContentErrors) as found:
        several.printed(book)
    assert "content/topics/averaging/learn.md:3:7: is wrong" in str(found.value)


def test_a_press_of_several_processes_prints_again_only_what_has_changed(
    copy, several, monkeypatch
):
    several.printed(copy.load())
    copy.edit("topics/averaging/learn.yml", "title: ", "title: Once more ")
    asked = []

    def noted(sheet, judged):
        asked.append(sheet.path)
        return printed(sheet, judged)

    monkeypatch.setattr(hands, "FEWEST", 1000)  # in this process, which can be asked
    monkeypatch.setattr(hands, "printed", noted)
    several.printed(copy.load())
    assert asked == ["topics/averaging/learn.md", "topics/averaging/summary.md"]


def test_processes_end_with_the_one_that_started_them_even_where_it_is_killed():
    starter = subprocess.Popen(
        [sys.executable, "-c", TWO_AT_WORK], cwd=ROOT, stdout=subprocess.PIPE
    )
    assert [starter.stdout.readline() for _ in range(2)] == [b"at work\n"] * 2
    starter.kill()
    starter.wait()
    assert starter.stdout.read() == b""  # there is an end once nobody holds the pipe any more
    starter.stdout.close()
