"""Starts ranks of a watched script from a process that has loaded torch, which saves seconds."""

import argparse
import contextlib
import json
import multiprocessing
import os
import runpy
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace

from tests.processes import free_port

PROGRAMS = Path(__file__).parent / "programs"


def verified(program, ranks, *words, options=(), content=Path("/no project"), forks_one=True):
    """The report of a program as JSON, its exit code, and what the rank that reports printed.

    Its trace is kept in a folder `content`, if there is one. The one process of `--one` is forked
    as the ranks are, and not started as the tool starts it, unless `forks_one` is false.
    """
    output, codes = _output(_watched, program, ranks, words, options, content, forks_one)
    start = output.find("{\n")
    report = json.JSONDecoder().raw_decode(output[start:])[0] if start >= 0 else {}
    return report, next((code for code in codes if (code or 0) >= 0), None), output


def unwatched(program, ranks, *words):
    """What the ranks print of a program that nobody watches."""
    output, codes = _output(_plain, program, ranks, words)
    assert codes == [0] * ranks, output
    return output


def _output(body, program, ranks, words, *more):
    """What ranks print whose last argument is a pipe for it, and their exit codes."""
    context = multiprocessing.get_context("forkserver")
    ours, theirs = context.Pipe()
    given = (ranks, free_port(), body, str(PROGRAMS / program), words, *more, theirs)
    started = [context.Process(target=_rank, args=(rank, *given)) for rank in range(ranks)]
    for process in started:
        process.start()
    theirs.close()
    output, end = "", time.monotonic() + 120
    with contextlib.suppress(EOFError, ConnectionError):
        while ours.poll(max(0, end - time.monotonic())):
            said = ours.recv()
            if isinstance(said, str):
                output += said
            else:  # the one process is wanted
                one = context.Process(target=_one, args=said)
                one.start()
                one.join(60)
                ours.send(one.exitcode)
    for process in started:
        process.join(max(0, end - time.monotonic()))
        process.kill()
    return output, [process.exitcode for process in started]


def _one(words, environment, errors):
    os.environ |= environment
    os.dup2(os.open(errors, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), 2)
    sys.argv = ["verify", *words]
    runpy.run_module("proofbook.companions.verify", run_name="__main__")


def _rank(rank, ranks, port, body, *given):
    from proofbook.companions.verify import launch

    os.environ |= launch.environment(rank, ranks, port)
    import torch

    torch.set_num_threads(1)
    output, name = tempfile.mkstemp(suffix=".out")
    file = Path(name)
    os.dup2(output, 1)
    os.dup2(1, 2)
    sys.stdout = os.fdopen(1, "w")
    body(rank, file, *given)


def _plain(rank, file, path, words, writer):
    sys.argv = [path, *words]
    sys.path.insert(0, str(Path(path).parent))
    runpy.run_path(path, run_name="__main__")
    sys.stdout.flush()
    writer.send(file.read_text())
    file.unlink()


def _watched(rank, file, path, words, options, content, forks_one, writer):
    """Its output goes through the pipe when it ends."""
    from proofbook.companions.verify import command, rerun
    from proofbook.runners.core.trace import machine

    def forked(command, *, env, **_):
        errors = file.with_suffix(".err")
        writer.send((command[3:], env, str(errors)))
        code = writer.recv()
        said = errors.read_text()
        errors.unlink()
        return SimpleNamespace(returncode=code, stderr=said)

    machine.TRACES = content / "traces"
    if forks_one:
        rerun.subprocess = SimpleNamespace(run=forked, TimeoutExpired=TimeoutError)
    leave, ends = os._exit, threading.Lock()

    def send_output_and_leave(code):
        ends.acquire()  # for good: a thread of the tool may end this process, too
        output = file.read_text()
        if rank == 0 or '"schema": ' in output:  # of the first rank that is left
            writer.send(output)
        file.unlink()
        writer.close()
        leave(code)

    os._exit = send_output_and_leave
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    given = ["--json", "--patience", "6", *options, path, *words]
    command.main(parser.parse_args(given))
