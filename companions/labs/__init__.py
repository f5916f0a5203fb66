"""Labs: the reader writes a technique, and runs grade it by the book's own laws.

A lab is a folder of `content/topics/<topic>/labs/`: `lab.yml` holds the words, `starter.py` what a
reader begins with, `solved.py` a solution, and `wrong.yml` programs that people write, as their
differences from it, each with the requirement that has to fail first.

Its *bench* in `benches/` says what the reader's code is called with, what one process computes
instead, and the requirements, which `laws` makes; `training` has what benches of training programs
share. `grading` runs a file against a bench, `shelf` finds labs and keeps what is solved, and
`command` is `python -m runners lab`. The grader is for honest mistakes: it is no security boundary.
"""
