"""
A hundred labels
================

Labels for a hundred of all images tell a β-VAE which code should be which factor. The same model is trained with
and without them, on small squares that this script draws, and looked at through the matrix of mutual information.
"""

import matplotlib.pyplot as plt
import torch
from pytorch_lightning import Trainer

from unknot.datamodules import FactorDataModule, FactorSpace, GroundTruthDataset, LabelledDataModule
from unknot.metrics.functional import information_matrix, mig
from unknot.zoo import BetaVAE, S2BetaVAE


class Squares(GroundTruthDataset):
    """Squares of three sizes, in four greys, at eight by eight places."""

    name = "squares"
    stochastic = False
    factor_space = FactorSpace(names=("size", "grey", "x", "y"), sizes=(3, 4, 8, 8))
    image_shape = (1, 32, 32)

    def observe(self, factors, generator=None):
        """Images of a batch of factors."""
        size, grey, x, y = (factors[:, i, None, None] for i in range(4))
        grid = torch.arange(32)
        across = (grid[None, None] >= 3 * x) & (grid[None, None] < 3 * x + 4 + 2 * size)
        down = (grid[None, :, None] >= 3 * y) & (grid[None, :, None] < 3 * y + 4 + 2 * size)
        return ((across & down) * (grey + 1) / 4)[:, None].float()


# %%
# Everything is equal but the labels: same network, same number of steps, same β.
dataset = Squares()
shared = {"beta": 1.0, "image_shape": dataset.image_shape, "latent_dim": 6, "lr": 1e-3}
runs = {
    "no labels": (BetaVAE, {}, FactorDataModule(dataset, batch_size=32, seed=0)),
    "100 labels": (S2BetaVAE, {"gamma_sup": 100.0}, LabelledDataModule(dataset, num_labels=100, batch_size=32, seed=0)),
}
factors = dataset.factor_space.sample(3000, torch.Generator().manual_seed(0))
found = {}
for name, (kind, more, data) in runs.items():
    torch.manual_seed(0)
    model = kind(**shared, **more)
    Trainer(
        max_steps=350, limit_val_batches=0, logger=False, enable_checkpointing=False, enable_progress_bar=False
    ).fit(model, datamodule=data)
    with torch.no_grad():
        found[name] = model.eval().represent(dataset.observe(factors))

# %%
figure, axes = plt.subplots(1, 2, figsize=(8, 4))
for axis, (name, codes) in zip(axes, found.items()):
    image = axis.imshow(information_matrix(codes, factors).values, vmin=0, vmax=2)
    axis.set(title=f"{name}: MIG {mig(codes, factors):.2f}", ylabel="code")
    axis.set_xticks(range(4), dataset.factor_space.names)
figure.colorbar(image, ax=axes, label="mutual information (nats)", shrink=0.8)
figure.suptitle("With labels, code i is about factor i")
plt.show()
