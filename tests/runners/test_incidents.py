"""Where the logs of ranks part: the first sign in which one of them differs from all others."""

import pytest

from proofbook.runners.experiments.incidents import parting


def log(*by_rank):
    """Lines as jobs write them: each rank's signs, one a step; other lines have none."""
    return [
        {"rank": rank, "at": at, "sign": sign, "text": "", "facts": {}}
        for rank, signs in enumerate(by_rank)
        for at, sign in enumerate(signs)
    ]


@pytest.mark.parametrize(
    ("signs", "odd_rank", "odd_step"),
    [
        (("aab", "aab", "aab"), -1, -1),
        (("aaa", "abb", "aaa"), 1, 1),
        (("abc", "abc", "ab"), 2, 2),  # a rank that logs nothing more
        (("abc", "bca", "cab"), -1, -1),  # all differ, so that none is the odd one
        (("aab", "aac", "aad", "bab"), 3, 0),
    ],
)
def test_the_odd_rank_is_the_one_that_differs_first_from_all_that_agree(signs, odd_rank, odd_step):
    assert parting(log(*signs), len(signs)) == (odd_rank, odd_step)


def test_lines_without_a_sign_do_not_shift_those_of_a_rank():
    lines = log("aab", "aab", "aab")
    lines.insert(1, {"rank": 0, "at": 0, "sign": None, "text": "a line more", "facts": {}})
    assert parting(lines, 3) == (-1, -1)
