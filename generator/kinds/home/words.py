"""What a page by hand says where it lists all topics."""

from proofbook.generator.content.words import Line, Written


class TopicList(Written):
    """A fence `topics` of a page by hand: all topics, each with what it requires."""

    names: Line
    """the head of the column of their names, which commands take."""
