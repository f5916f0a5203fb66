"""Will a model fit, and on what? Strategies of distributed training, simulated before any device.

In: a model, devices, a batch, a precision, an optimizer. Out: for each strategy what the busiest
rank holds at its peak, by class; what it sends in a step; what it computes; what CUDA's allocator
would reserve. Each strategy runs as one rank of many with fake tensors (`runners/simulate`).
"""
