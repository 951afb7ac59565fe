"""Slot Attention, forward and backward, beside the `slot-attention` package: one thread, CPU time.

    pip install 'unknot[bench]' && python benchmarks/slots.py

The sizes are those of set prediction on CLEVR: batch 32, 1024 inputs of 64 numbers, 10 slots, 3 iterations. Both
compute the same function; ours projects the slots instead of the inputs. Rounds alternate, so that load on the machine
meets both.
"""

import os
import time
from collections.abc import Iterator

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from common import Row, compare, run
from slot_attention import SlotAttention as Theirs

from unknot.zoo import SlotAttention

BATCH, INPUTS, DIM, SLOTS, ITERATIONS = 32, 1024, 64, 10, 3


def seconds(module: torch.nn.Module, inputs: torch.Tensor) -> float:
    """Return the CPU time of one forward and backward pass, with gradients of inputs and weights."""
    inputs.grad = None
    module.zero_grad()
    start = time.process_time()
    result = module(inputs)
    slots = result if isinstance(result, torch.Tensor) else result.slots
    slots.square().mean().backward()
    return time.process_time() - start


def same_function(ours: SlotAttention) -> float:
    """Return the largest difference of the slots after copying all weights, from the same noise."""
    reference = Theirs(SLOTS, DIM, ITERATIONS)
    with torch.no_grad():
        for layer in (reference.to_q, reference.to_k, reference.to_v):
            layer.bias.zero_()
        for norm, mine in zip(
            (reference.norm_input, reference.norm_slots, reference.norm_pre_ff),
            (ours.norm_inputs, ours.norm_slots, ours.norm_mlp),
            strict=True,
        ):
            norm.eps = mine.eps
        reference.to_q.weight.copy_(ours.q.weight)
        reference.to_k.weight.copy_(ours.k.weight)
        reference.to_v.weight.copy_(ours.v.weight)
        reference.gru.load_state_dict(ours.gru.state_dict())
        reference.mlp.load_state_dict(ours.mlp.state_dict())
        reference.slots_mu.copy_(ours.mu)
        reference.slots_logsigma.copy_(ours.log_sigma)
        inputs = torch.randn(BATCH, INPUTS, DIM)
        torch.manual_seed(1)
        expected = reference(inputs)
        torch.manual_seed(1)
        return float((ours(inputs).slots - expected).abs().max())


def entries() -> Iterator[Row]:
    """Compare both modules on the same inputs, after checking that they compute the same function."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    ours, theirs = SlotAttention(SLOTS, DIM, num_iterations=ITERATIONS), Theirs(SLOTS, DIM, ITERATIONS)
    inputs = torch.randn(BATCH, INPUTS, DIM, requires_grad=True)
    assert same_function(ours) < 1e-4
    name = "Slot Attention, forward and backward"
    yield compare(name, lambda: seconds(ours, inputs), "slot-attention", lambda: seconds(theirs, inputs), 15)


if __name__ == "__main__":
    run(entries)
