"""`python -m runners schema`: the JSON Schema of a trace, made from the models."""

from __future__ import annotations

import argparse
import json

from runners.traces.records import Trace


def add_arguments(_: argparse.ArgumentParser) -> None:
    """The command takes nothing."""


def main(_: argparse.Namespace) -> int:
    """Print the schema."""
    print(json.dumps(Trace.model_json_schema(), indent=1, sort_keys=True))
    return 0
