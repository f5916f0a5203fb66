"""torchrun on one node of several, with a word for each wait and an exit code that says what ended.

    python -m runners.cluster --nnodes 2 --rdzv-backend c10d --rdzv-endpoint HOST:29400 \
        EXPERIMENT[.RUN] … [--full]
    python -m runners.cluster --nnodes 2 --node-rank 0 --master-addr HOST --master-port 29400 \
        EXPERIMENT[.RUN] … [--full]

In: torchrun's own options, then what `runners.node` takes. Out: `runners.node` once a rank, started
by torchrun in this process. Where torchrun alone would wait in silence or guess, this module

- waits for the node that holds the rendezvous, and says every five seconds for whom;
- finds out whether that is this node by its addresses (torchrun compares host names), and tells the
  others an address of this node that they can reach (torchrun tells its host name);
- ends when the processes that it started have ended, even where torchrun still waits for a node
  that is gone;
- passes on the exit code of `runners.node`, where torchrun makes each of them a 1.

Exit codes: 0 every run ended as declared, 1 a surprise, 2 a wrong call, 3 a node was lost; stopped
by Ctrl-C 130, by SIGTERM 143, by SIGHUP 129.
"""

from __future__ import annotations

from runners.system import limits, stopping, streams

if __name__ == "__main__":  # before torch is loaded
    stopping.listen("stopped; what was measured before is kept")
    limits.explain("python -m runners.cluster")

import argparse
import errno
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

# Read when torch is loaded. Each process says itself why it ends, without a stack of C++.
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")

import torch.distributed.run as torchrun
from torch.distributed import DistError
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous import RendezvousError
from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint

from runners.cluster.node import LOST, runs_named
from runners.cluster.peers import WORD_SECONDS, NodeLostError, say
from runners.cluster.torchrun import NodeError
from runners.plans.experiment import UnknownExperimentError
from runners.system.scratch import Scratch

MEET_SECONDS = 600.0  # for all nodes to start: torchrun's own patience with a rendezvous
# torchrun's processes have ended: the longest that it may wait for those of other nodes.
LINGER_SECONDS = 3.0
DONE_SECONDS = 10.0  # the same where they ended well, so that the others will, too
CONNECT_SECONDS = 2.0
LOOK_SECONDS = 0.02
UNWIND_SECONDS = 0.5  # for the main thread to end by itself once a signal has come
FEWEST_FILES = 64  # open at once: a store, a log and a pipe for each process, torch's libraries
DEFAULT_PORT = 29400


class Rendezvous:
    """Where the nodes meet, seen from this one.

    Attributes:
        endpoint: its host and port, as given.
        is_here: whether this node holds it.
        local_address: how the other nodes reach this one.
    """

    def __init__(self, host: str, port: int, *, is_here: bool | None = None) -> None:
        """Resolve the host, as often as that takes.

        Args:
            host: a name or an address.
            port: where the holder listens.
            is_here: whether this node holds it; None: find out.

        Raises:
            NodeLostError: no name server knows the host.
        """
        self.endpoint = f"{host}:{port}"
        self._host, self._port = host, port
        self._address = self._resolved()
        self.is_here = _is_free(self._address, port) if is_here is None else is_here
        self.local_address = self._local_address()

    def _resolved(self) -> str:
        wait = _Wait(f"for the address of {self._host}")
        while True:
            try:
                return str(socket.getaddrinfo(self._host, None, proto=socket.IPPROTO_TCP)[0][4][0])
            except OSError as error:
                wait.word(error.strerror or str(error))
                time.sleep(LOOK_SECONDS)

    def _local_address(self) -> str:
        """The address on the way to the holder; its name where the name means a loopback here."""
        family = socket.AF_INET6 if ":" in self._address else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as way:
            try:
                way.connect((self._address, self._port))  # sends nothing
            except OSError:
                return socket.gethostname()
            address = str(way.getsockname()[0])
        return self._host if address.startswith("127.") else address

    def wait(self) -> None:
        """Wait until its holder listens.

        Raises:
            NodeLostError: it never did.
        """
        wait = _Wait(f"for the node that holds {self.endpoint}")
        while not self.is_here:
            try:
                socket.create_connection((self._address, self._port), CONNECT_SECONDS).close()
                return
            except OSError as error:
                wait.word(error.strerror or "no answer")
                time.sleep(10 * LOOK_SECONDS)


class _Wait:
    """A wait that is spoken of every five seconds, and that ends."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._start = self._said = time.monotonic()

    def word(self, why: str) -> None:
        """Say what is waited for, if it is time; `why` it is not there.

        Raises:
            NodeLostError: it has taken too long.
        """
        now = time.monotonic()
        if now - self._start > MEET_SECONDS:
            raise NodeLostError(f"waited {MEET_SECONDS:.0f} s in vain {self._what}: {why}")
        if now - self._said > WORD_SECONDS:
            self._said = now
            say(f"{socket.gethostname()}: waiting {self._what} ({now - self._start:.0f} s): {why}")


def _is_free(address: str, port: int) -> bool:
    """Whether the address is this machine's own, and nobody listens on the port yet."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


def _processes() -> int | None:
    """None while a process that torchrun started lives; else how the last of them ended, if known.

    Raises:
        ChildProcessError: there is none.
    """
    ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if ended is None:
        return None
    return ended.si_status if ended.si_code == os.CLD_EXITED else LOST


class _Guard(threading.Thread):
    """Says what torchrun waits for, and ends this process where torchrun would wait in vain."""

    def __init__(self, what: str, scratch: Scratch) -> None:
        super().__init__(name="guard", daemon=True)
        self._what = what
        self._scratch = scratch
        # A store that waits keeps the main thread from hearing a signal; this thread reads it here.
        self._signals, written = socket.socketpair()
        self._signals.setblocking(False)
        written.setblocking(False)
        self._written = written  # as long as this thread
        signal.set_wakeup_fd(written.fileno(), warn_on_full_buffer=False)

    def run(self) -> None:
        """Before, between and after torchrun's processes."""
        wait = _Wait(self._what)
        has_started, code, ended_at = False, LOST, 0.0
        while True:
            time.sleep(LOOK_SECONDS)
            ended: int | None = None
            with suppress(ChildProcessError):
                ended = _processes()
                has_started = True
                if ended is None:
                    ended_at = 0.0
                    continue
                code = ended
            if not has_started:
                self._say(wait)
                self._stop()
                continue
            ended_at = ended_at or time.monotonic()
            if time.monotonic() - ended_at > (LINGER_SECONDS if code else DONE_SECONDS):
                here = socket.gethostname()
                self._leave(f"{here}: leaves; torchrun still waits for the other nodes", code)

    def _say(self, wait: _Wait) -> None:
        try:
            wait.word("they have not all come")
        except NodeLostError as error:
            self._leave(str(error), LOST)

    def _stop(self) -> None:
        with suppress(BlockingIOError):
            number = self._signals.recv(1)[0]
            time.sleep(UNWIND_SECONDS)
            self._scratch.remove()
            os._exit(stopping.told(stopping.Stopped(number)))

    def _leave(self, why: str, code: int) -> None:
        """End this process, whatever its main thread waits for."""
        say(why)
        self._scratch.remove()
        os._exit(code)


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Torchrun's own options; what follows them are names and options of `runners.node`.

    Raises:
        NodeError, UnknownExperimentError: a name, or an option, that cannot be.
    """
    parsed: argparse.Namespace = torchrun.parse_args(
        list(sys.argv[1:] if arguments is None else arguments)
    )
    names = [parsed.training_script, *parsed.training_script_args]
    runs_named([name for name in names if not name.startswith("-")])
    if parsed.max_restarts:
        raise NodeError("a lost node ends the measurement; leave out --max-restarts")
    fewest, _, most = parsed.nnodes.partition(":")
    if most not in ("", fewest):
        raise NodeError(f"--nnodes is one number of nodes, not {parsed.nnodes}")
    parsed.nnodes = fewest  # torchrun's own default is 1:1
    parsed.module, parsed.training_script, parsed.training_script_args = (
        True,
        "runners.cluster.node",
        names,
    )
    return parsed


def _meet(parsed: argparse.Namespace) -> str:
    """Settle where the nodes meet, and wait for its holder; what is left to wait for, in words."""
    others = int(parsed.nnodes) - 1
    if parsed.standalone or (others == 0 and not parsed.rdzv_endpoint):
        return "for torchrun"
    is_static = parsed.rdzv_backend == "static"
    given = parsed.rdzv_endpoint or f"{parsed.master_addr}:{parsed.master_port or 29500}"
    host, port = parse_rendezvous_endpoint(given, DEFAULT_PORT)
    place = Rendezvous(host, port, is_here=parsed.node_rank == 0 if is_static else None)
    place.wait()
    if not is_static:
        parsed.local_addr = parsed.local_addr or place.local_address
        if "is_host" not in parsed.rdzv_conf:
            comma = "," if parsed.rdzv_conf else ""
            parsed.rdzv_conf += f"{comma}is_host={int(place.is_here)}"
    nodes = f"the other {others} nodes" if others > 1 else "the other node"
    return f"for {nodes} of {others + 1} at {place.endpoint}"


def _code_of(failed: ChildFailedError) -> int:
    """How the first process that failed ended: by itself, or by a signal from outside."""
    rank, first = failed.get_first_failure()
    if first.exitcode >= 0:
        return int(first.exitcode)
    name = signal.Signals(-first.exitcode).name
    say(f"{socket.gethostname()}: the process of rank {rank} was ended by {name}")
    return LOST


def _run(parsed: argparse.Namespace) -> int:
    """Let torchrun run, until its processes have ended."""
    if "LOGLEVEL" not in os.environ:  # each process says itself why it ends
        logging.disable(logging.CRITICAL)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    limits.want_files(FEWEST_FILES)
    what = _meet(parsed)
    scratch = None
    try:
        with stopping.held():  # made and known, or not made
            scratch = Scratch()
        parsed.log_dir = parsed.log_dir or str(scratch.folder())  # torchrun would leave one behind
        _Guard(what, scratch).start()
        torchrun.run(parsed)
    except ChildFailedError as failed:
        return _code_of(failed)
    except SignalException as stopped:
        return stopping.told(stopping.Stopped(stopped.sigval))
    finally:
        if scratch is not None:
            scratch.remove()
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Be torchrun on one node; what a person can fix is one line and exit code 2."""
    try:
        return _run(_parsed(arguments))
    except KeyboardInterrupt as stopped:
        return stopping.told(stopped)
    except limits.LimitError as error:
        say(f"python -m runners.cluster: {error}")
        return 2
    except NodeLostError as error:
        say(f"python -m runners.cluster: {error}")
        return LOST
    except (NodeError, UnknownExperimentError, ValueError, AssertionError) as error:
        say(f"python -m runners.cluster: {error}")
        return 2
    except (RendezvousError, DistError) as error:
        if os.strerror(errno.EADDRINUSE).lower() in str(error).lower():
            say("python -m runners.cluster: another process listens on this port; choose another")
            return 2
        say("python -m runners.cluster: the node that holds the rendezvous is lost")
        return LOST


if __name__ == "__main__":
    exit_code = streams.report(main())
    os._exit(exit_code)  # all is cleaned up, and to unload torch takes seconds on a busy machine
