"""Nodes that are lost in every way, under both kinds of rendezvous."""

import pytest

from tests.runners.two_nodes import WAYS, lost, two_nodes, with_nodes


@with_nodes
@pytest.mark.soak
@pytest.mark.parametrize("how", WAYS)
def test_the_others_say_which_node_is_lost_and_end(how, tmp_path):
    with two_nodes(tmp_path) as nodes:
        lost(nodes, how)
