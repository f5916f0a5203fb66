"""Recall: the topic's items again, each when it is due."""

from __future__ import annotations

from generator.content.words import Id, Line, Naming, Prose


class RecallFile(Naming):
    """content/topics/<topic>/recall.yml: the topic's items again, each when it is due."""

    title: Line
    introduction: Prose
    leave_out: list[Id] = []  # make sense on their own page only: Recall leads there
    afterword: Prose
