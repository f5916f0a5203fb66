"""What a file of experiments may take from here: how runs are declared. No torch.

A run itself takes `Rank` and its meters from `runners.training.rank`. Both modules pass on names
alone, so a digest covers where each comes from. What else lies in `runners` may change in any
release.
"""

from proofbook.runners.core.declared.experiment import Declaration, PassName
from proofbook.runners.core.declared.settings import (
    NUM_SETTLING_STEPS,
    Count,
    CountOrZero,
    Factor,
    FactorOrZero,
    FreeSettings,
    RunSettings,
    Seconds,
    Settled,
    closed_form,
)
from proofbook.runners.core.trace.records import Death, Layer, Model, PredictionStep
from proofbook.runners.core.trace.schema import Setting, Status
from proofbook.runners.system.book import ROOT

__all__ = [
    "NUM_SETTLING_STEPS",
    "ROOT",
    "Count",
    "CountOrZero",
    "Death",
    "Declaration",
    "Factor",
    "FactorOrZero",
    "FreeSettings",
    "Layer",
    "Model",
    "PassName",
    "PredictionStep",
    "RunSettings",
    "Seconds",
    "Setting",
    "Settled",
    "Status",
    "closed_form",
]
