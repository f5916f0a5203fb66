"""Starts ranks of a watched script from a process that has loaded torch, which saves seconds."""

import argparse
import contextlib
import json
import multiprocessing
import os
import sys
import threading
from pathlib import Path

from tests.processes import free_port

PROGRAMS = Path(__file__).parent / "programs"
PRELOADED = [
    "proofbook.runners.verify.command",
    "torch.distributed.tensor.parallel",
    "torch.distributed.pipelining",
    "torch._dynamo",
]


def verified(program, ranks, *words, options=(), content=Path("/no project")):
    """The report of a program as JSON, its exit code, and what the rank that reports printed.

    Its trace is kept in a folder `content`, if there is one.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    port = free_port()
    path = program if isinstance(program, Path) else PROGRAMS / program
    reader, writer = context.Pipe(duplex=False)
    arguments = (ranks, port, str(path), words, options, content, writer)
    started = [context.Process(target=_run_rank, args=(rank, *arguments)) for rank in range(ranks)]
    for process in started:
        process.start()
    writer.close()
    for process in started:
        process.join(120)
        process.kill()
    output = ""
    with contextlib.suppress(EOFError):
        while True:
            output += reader.recv()
    start = output.find("{\n")
    report = json.JSONDecoder().raw_decode(output[start:])[0] if start >= 0 else {}
    code = next((own.exitcode for own in started if (own.exitcode or 0) >= 0), None)
    return report, code, output


def _run_rank(rank, ranks, port, path, words, options, content, writer):
    """The body of a rank; its output goes through the pipe when it ends."""
    from proofbook.runners.core.trace import machine
    from proofbook.runners.verify import board, command

    machine.TRACES = content / "traces"
    os.environ |= board.environment(rank, ranks, port)
    import torch

    torch.set_num_threads(1)
    leave = os._exit
    file = Path(f"/tmp/verify-{os.getpid()}.out")
    os.dup2(os.open(file, os.O_RDWR | os.O_CREAT | os.O_TRUNC), 1)
    os.dup2(1, 2)
    sys.stdout = os.fdopen(1, "w")

    ends = threading.Lock()

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
