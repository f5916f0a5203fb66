"""What the memory meter makes of storages, against bytes that are added up by hand."""

import torch

from proofbook.runners.core.meters.memory import MemoryMeter
from proofbook.runners.core.trace.measured import MemoryClasses

META = torch.device("meta")


def test_a_replay_keeps_the_largest_of_each_class_and_phase_and_not_the_last():
    with MemoryMeter() as meter:
        meter.enter("forward")
        weights, inside, more = torch.ones(1000), torch.ones(300), torch.ones(200)
        meter.name([weights], "parameters")
        meter.name([weights.view(10, 100)], "activations")  # a view is the same storage
        del inside, more
        meter.enter("backward")
        first = torch.ones(250)
        meter.name([first], "gradients")
        del first
        second = torch.ones(100)
        meter.name([second], "gradients")
    memory = meter.memory(None)
    zero = dict.fromkeys(MemoryClasses.model_fields, 0)
    assert memory.phases == {"forward": 6000, "backward": 5000}
    assert (memory.peak_bytes, memory.peak_phase) == (6000, "forward")
    at_peak = zero | {"parameters_bytes": 4000, "activations_bytes": 2000}
    assert memory.at_peak == MemoryClasses(**at_peak)
    assert memory.largest == MemoryClasses(**at_peak | {"gradients_bytes": 1000})
    assert meter.num_storages == 3


def test_a_storage_that_grows_counts_what_it_grew_by():
    with MemoryMeter() as meter:
        held = torch.ones(10)
        held.untyped_storage().resize_(400)
        held.untyped_storage().resize_(0)
        other = torch.ones(20)
    assert meter.memory(None).peak_bytes == 400
    assert other.nbytes == 80


def test_what_lies_on_another_device_is_counted_apart():
    with MemoryMeter(META) as meter:
        first, second = torch.ones(60), torch.ones(40)
        del first
        third = torch.ones(50)
    assert meter.host_peak_bytes() == 400
    assert meter.memory(None).peak_bytes == 0
    assert second.nbytes + third.nbytes == 360
