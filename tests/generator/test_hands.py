"""Processes that print end with the one that started them."""

import subprocess
import sys

from tests.conftest import ROOT

TWO_AT_WORK = """
import time
from generator.pages import hands

def work():
    print("at work", flush=True)
    time.sleep(86400)

list(hands.done([work] * hands.FEWEST, 2))
"""


def test_processes_end_with_the_one_that_started_them_even_where_it_is_killed():
    starter = subprocess.Popen(
        [sys.executable, "-c", TWO_AT_WORK], cwd=ROOT, stdout=subprocess.PIPE
    )
    assert [starter.stdout.readline() for _ in range(2)] == [b"at work\n"] * 2
    starter.kill()
    starter.wait()
    assert starter.stdout.read() == b""  # there is an end once nobody holds the pipe any more
    starter.stdout.close()
