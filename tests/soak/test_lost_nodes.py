"""Nodes that are lost in every way, under both kinds of rendezvous."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runners.two_nodes import WAYS, lost, two_nodes, with_nodes


@with_nodes
@pytest.mark.soak
@pytest.mark.parametrize("how", WAYS)
def test_the_others_say_which_node_is_lost_and_end(how: str, tmp_path: Path) -> None:
    with two_nodes(tmp_path) as nodes:
        lost(nodes, how)
