"""Calculators in lessons."""

from proofbook.runners.system.kinds import Kind

KIND = Kind(
    scripts={"calculator": "OperatedCalculator"},
    styles={"calculator": "OperatedCalculator"},
    spoken={"calculator": "calculator"},
)
