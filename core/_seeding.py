"""Random streams that are addressed by a counter instead of being carried as a state."""

import numpy as np


def derive_seed(*key: int) -> int:
    """Hash integers, such as (seed, rank, batch index), into one well-mixed 63-bit seed.

    What a training run draws in step n is then a function of n alone: nothing has to be saved to resume it
    exactly, and no two ranks, workers or steps share a stream.

    >>> derive_seed(0, 1) != derive_seed(1, 0)
    True
    """
    # SeedSequence takes non-negative integers only; torch hands out seeds of the full signed 64-bit range.
    words = [k & 0xFFFF_FFFF_FFFF_FFFF for k in key]
    return int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0] >> np.uint64(1))
