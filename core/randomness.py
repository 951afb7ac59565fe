"""Random streams addressed by a counter instead of a stored state."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

import numpy as np
import torch


class Stream(IntEnum):
    """Purpose of a random stream; part of its key, so that two streams of one seed never share random numbers."""

    TRAIN_DATA = 0
    HELD_OUT_DATA = 1
    TRAIN_NOISE = 2
    HELD_OUT_NOISE = 3
    LABELS = 4
    TRAIN_EXAMPLES = 5


def derive_seed(*key: int) -> int:
    """Hash integers, such as (seed, stream, rank, batch index), into one well-mixed 63-bit seed.

    The random numbers of step n are then a function of n alone: nothing has to be saved to resume a run exactly, and no
    two ranks, workers or steps share a stream.

    >>> derive_seed(0, 1) != derive_seed(1, 0)
    True
    """
    # SeedSequence takes non-negative integers only; torch returns seeds of the full signed 64-bit range.
    words = [k & 0xFFFF_FFFF_FFFF_FFFF for k in key]
    return int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0] >> np.uint64(1))


def seed_device(seed: int, device: torch.device) -> None:
    """Seed the global generators of the CPU and of ``device``.

    ``torch.manual_seed`` seeds every kind of device, which takes a large part of a millisecond.
    """
    torch.default_generator.manual_seed(seed)
    if device.type != "cpu":
        getattr(torch, device.type).manual_seed(seed)


@contextmanager
def kept_generators(device: torch.device | str = "cpu") -> Iterator[None]:
    """Restore the global generators of the CPU and of ``device`` after the block.

    >>> state = torch.get_rng_state()
    >>> with kept_generators():
    ...     _ = torch.rand(3)
    >>> torch.equal(torch.get_rng_state(), state)
    True
    """
    state = generator_states(torch.device(device))
    try:
        yield
    finally:
        restore_generators(state)


def generator_states(device: torch.device) -> dict[str, torch.Tensor]:
    """Return the states of the global generators of the CPU and of ``device``."""
    states = {"cpu": torch.get_rng_state()}
    if device.type not in ("cpu", "meta"):
        states[str(device)] = getattr(torch, device.type).get_rng_state(*_one_of_many(device))
    return states


def restore_generators(states: dict[str, torch.Tensor]) -> None:
    """Set the global generators to the result of :func:`generator_states`."""
    for name, state in states.items():
        device = torch.device(name)
        if device.type == "cpu":
            torch.set_rng_state(state)
        else:
            getattr(torch, device.type).set_rng_state(state, *_one_of_many(device))


def _one_of_many(device: torch.device) -> tuple[torch.device, ...]:
    return () if device.type == "mps" else (device,)  # there is only one such device
