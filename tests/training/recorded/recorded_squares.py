"""The data set that the recorded runs were trained on."""

import torch

from unknot.datamodules import FactorSpace, GroundTruthDataset


class TinySquares(GroundTruthDataset):
    """Squares of three sizes at four by four places, 16 pixels."""

    name = "tiny_squares"
    stochastic = False
    factor_space = FactorSpace(("size", "x", "y"), (3, 4, 4))
    image_shape = (1, 16, 16)

    def observe(self, factors, generator=None):
        size, x, y = (factors[:, i, None, None] for i in range(3))
        grid = torch.arange(16)
        right, down = grid[None, None, :] - 3 * x, grid[None, :, None] - 3 * y
        return ((right >= 0) & (right < 2 + size) & (down >= 0) & (down < 2 + size)).float()[:, None]
