"""Two network namespaces as two nodes: each with its own address, host name and hosts file.

In: what each node starts. Out: what it said and how it ended; nothing of it is left behind.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest

from proofbook.runners.core.system import links
from proofbook.runners.core.trace import machine
from proofbook.runners.traces.files import read
from tests.conftest import slowness
from tests.processes import OWN_EXPERIMENTS, parent

PORT = 29400
MOST_SECONDS = 900  # a loaded machine starts two torchruns, and loads torch eight times
PATIENCE_SECONDS = 300.0 * slowness()  # a node that was lost used to take half an hour
NOT_PASSED_ON = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "PROOFBOOK_STDERR")
SETS_UP = 'hostname "$1" && mount --bind "$2" /etc/hosts && shift 2 && exec "$@"'


def _inside(namespace, node, hosts, command):
    """The command as a process of a node."""
    return [
        *("nsenter", f"--net={links.NAMES / namespace}", "unshare", "--uts", "--mount"),
        *("sh", "-c", SETS_UP, "sh", f"n{node}", str(hosts), *command),
    ]


@cache
def cannot_be_nodes():
    """Why this machine cannot have nodes of its own; None where it can."""
    if (reason := links.cannot_link()) is not None:
        return reason
    with tempfile.NamedTemporaryFile() as hosts, links.linked(1) as (namespace,):
        command = _inside(namespace, 0, Path(hosts.name), ["true"])
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError as error:
            return f"nodes need `{error.filename}` (util-linux)"
    return done.stderr.strip() or "nodes cannot be made here" if done.returncode else None


class TwoNodes:
    """Two nodes; `start` something on them, `wait` until it has ended."""

    def __init__(self, namespaces, folder):
        self.namespaces, self.folder, self.traces = [*namespaces], folder, folder / "traces"
        self._hosts, self._started = folder / "hosts", []
        names = "".join(f"{links.address(node)} n{node}\n" for node in (0, 1))
        self._hosts.write_text(f"127.0.0.1 localhost\n{names}")

    def start(self, rendezvous, host, *names):
        """Start `runners.cluster`, which knows the first node by a "name" or by an "address"."""
        first = "n0" if host == "name" else links.address(0)
        for node, namespace in enumerate(self.namespaces):
            meet = f"--node-rank {node} --master-addr {first} --master-port {PORT}"
            if rendezvous == "c10d":
                meet = f"--rdzv-backend c10d --rdzv-endpoint {first}:{PORT} --rdzv-id t"
            torchrun = f"-m torch.distributed.run --nnodes 2 {meet} -m runners.cluster"
            command = [sys.executable, *torchrun.split(), *names]
            self.temporary(node).mkdir(exist_ok=True)
            environment = {k: v for k, v in os.environ.items() if k not in NOT_PASSED_ON}
            environment |= OWN_EXPERIMENTS
            environment |= {
                "TMPDIR": str(self.temporary(node)),
                "PROOFBOOK_TRACES": str(self.traces),
            }
            inside = _inside(namespace, node, self._hosts, command)
            with (self.folder / f"said{node}").open("wb") as said:
                one = subprocess.Popen(inside, env=environment, stdout=said, stderr=said)
            self._started.append(one)

    def temporary(self, node):
        return self.folder / f"temporary{node}"

    def said(self, node):
        return (self.folder / f"said{node}").read_text(encoding="utf-8", errors="replace")

    def wait_for(self, word):
        """Wait until some node has said this."""
        end = time.monotonic() + PATIENCE_SECONDS
        while not any(word in self.said(node) for node in (0, 1)):
            assert time.monotonic() < end, f"nobody said {word!r}: {self.said(0)} {self.said(1)}"
            assert any(p.poll() is None for p in self._started), self.said(0) + self.said(1)
            time.sleep(0.1)

    def wait(self):
        end = time.monotonic() + PATIENCE_SECONDS
        codes = [started.wait(max(0.0, end - time.monotonic())) for started in self._started]
        self._started.clear()
        return codes

    def processes(self, node):
        """The processes of a node, by process id, with their commands."""
        words = ["ip", "netns", "pids", self.namespaces[node]]
        told = subprocess.run(words, capture_output=True, text=True, check=True)
        found = {}
        for pid in map(int, told.stdout.split()):
            with suppress(OSError):  # it may have ended a moment ago
                found[pid] = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
        return {pid: command for pid, command in found.items() if command}

    def kill(self, node, part):
        """Kill of a node its `torchrun`, the `process` that torchrun started, or its `rank`."""
        commands = {
            "torchrun": "-m torch.distributed.run",
            "process": "-u -m runners.cluster",
            "rank": "runners.core.measuring.forkserver",
        }
        found = [p for p, c in self.processes(node).items() if commands[part] in c]
        if part == "rank":  # which has its forkserver's command line, and is its child
            found = [pid for pid in found if parent(pid) in found]
        for pid in found:
            os.kill(pid, signal.SIGKILL)

    def stop(self, node):
        self._started[node].terminate()

    def silence(self, node):
        """Let the switch drop every packet from a node and to it, while its link stays up."""
        switch = self.namespaces[node].rpartition("-")[0] + "-switch"
        subprocess.run(["ip", "-n", switch, "link", "set", f"port{node}", "nomaster"], check=True)

    def left(self):
        """Processes that outlive what was started by more than a busy machine takes to end them."""
        end = time.monotonic() + 60
        while time.monotonic() < end and any(self.processes(node) for node in (0, 1)):
            time.sleep(0.1)
        return self.processes(0) | self.processes(1)

    def end(self):
        for pid in self.processes(0) | self.processes(1):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for started in self._started:
            started.wait()


def ended(nodes):
    """What two nodes said, how they ended, and what was left, once both have ended."""
    codes = nodes.wait()
    said, left = [nodes.said(node) for node in (0, 1)], nodes.left()
    temporary = [sorted(p.name for p in nodes.temporary(n).glob("proofbook*")) for n in (0, 1)]
    return SimpleNamespace(
        codes=codes, said=said, left=left, temporary=temporary, folder=folder_of(nodes)
    )


def folder_of(nodes):
    """Where they keep what they measure: this machine has an id by then, as they will find it."""
    machine.keep_id()
    return nodes.traces / f"2-nodes-{machine.describe().name}"


SILENT = "node 1 (n1) is lost: it has been silent for 15 s"
NO_STORE = "node 0 (n0) is lost: its torchrun, which keeps the store, ended"
NO_ANSWER = "node 0 (n0) is lost: its store has been silent for 15 s"
NO_TORCHRUN = "node 1 (n1) is lost: its torchrun ended"
STOPPED = "node 1 (n1) was stopped by SIGTERM; what its torchrun prints says why"
DEAD = "lasting.endless is lost: node 1 (n1): rank 1 died in all_reduce: SIGKILL"
WAYS = {  # to lose a node: how the nodes meet, what is done to them, and who says what then
    "torchrun, c10d": ("c10d", "address", lambda on: on.kill(0, "torchrun"), {1: NO_STORE}),
    "torchrun, static": ("static", "name", lambda on: on.kill(1, "torchrun"), {0: NO_TORCHRUN}),
    "process, c10d": ("c10d", "name", lambda on: on.kill(1, "process"), {0: SILENT}),
    "packets, static": ("static", "name", lambda on: on.silence(1), {0: SILENT, 1: NO_ANSWER}),
    "rank": ("static", "address", lambda on: on.kill(1, "rank"), {0: DEAD, 1: DEAD}),
    "stopped": ("c10d", "name", lambda on: on.stop(1), {0: STOPPED}),
}


def lost(nodes, how, *before):
    """Lose a node after some runs, in the middle of one: the others say so, and keep its trace."""
    rendezvous, host, action, survivors = WAYS[how]
    previous = folder_of(nodes) / "lasting.json"
    previous.parent.mkdir(parents=True)
    previous.write_bytes(b"what was measured before")
    nodes.start(rendezvous, host, *before, "lasting")
    nodes.wait_for("rank 0 all_reduce")
    action(nodes)
    found = ended(nodes)
    assert found.left == {}
    for survivor, words in survivors.items():
        assert words in found.said[survivor]
        assert found.codes[survivor]
        assert found.temporary[survivor] == []
    assert previous.read_bytes() == b"what was measured before"
    assert set(read(previous.parent / ".lasting.part").runs) == {"brief"}
    return found


def with_nodes(test):
    reason = cannot_be_nodes()
    for mark in (
        pytest.mark.skipif(reason is not None, reason=str(reason)),
        pytest.mark.ranks,
        pytest.mark.timeout(MOST_SECONDS),
    ):
        test = mark(test)
    return test


@contextmanager
def two_nodes(folder):
    with links.linked(2, 10**9) as namespaces:
        nodes = TwoNodes(namespaces, folder)
        try:
            yield nodes
        finally:
            nodes.end()
