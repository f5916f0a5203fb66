"""Nodes that are lost in every way, under both kinds of rendezvous, and that start again."""

import pytest

from proofbook.runners.traces.files import read
from tests.runners.two_nodes import WAYS, ended, lost, two_nodes, with_nodes


@with_nodes
@pytest.mark.soak
@pytest.mark.parametrize("how", WAYS)
def test_the_others_say_which_node_is_lost_and_end(how, tmp_path):
    with two_nodes(tmp_path) as nodes:
        folder = lost(nodes, how).folder
        if how != "rank":
            return
        nodes.start("c10d", "name", "lasting.brief")  # takes what had ended
        found = ended(nodes)
        assert found.codes == [0, 0], found.said
        assert "kept as measured before" in found.said[0]
        assert read(folder / "lasting.json").runs["brief"].status == "completed"
        assert not (folder / ".lasting.part").exists()
