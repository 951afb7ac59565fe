"""Pairs of images that differ in few factors, drawn from a ground-truth data set."""

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from unknot.datamodules.factors import FactorSpace, GroundTruthDataset
from unknot.datamodules.stream import FactorDataModule


class PairDataModule(FactorDataModule):
    r"""Pairs of images whose second image has one or k factors of the first resampled.

    .. math:: z \sim p(z)

    .. math:: \tilde z_i \sim p(\tilde z_i)\ (i \in S)

    .. math:: x_1 = g(z)

    .. math:: x_2 = g(f(z, \tilde z, S))

    Thesis: Eqs. "eq:generative-model-1" to "eq:generative-model-4", section "Problem Setting" of the
    weakly-supervised chapter.

    Section "Experimental Results" of the chapter "Weakly-Supervised Disentanglement": the first image is drawn i.i.d.;
    "then, we sample either one factor (corresponding to sparse changes) or k factors of variation (to allow potentially
    denser changes) that may not be shared by the two images and re-sample those coordinates". Each resampled factor may
    keep its old value, so a pair differs in at most k factors and some pairs are identical.

    A batch is ``(first, second)``, each ``[N, C, H, W]``, or ``(first, second, changed)``, or with factors
    ``(first, second, changed, first_factors, second_factors)``.

    Args:
        dataset: data set to draw factors and images from.
        k: number of factors that may change, from 1 to F - 1, or ``"rnd"``: for every pair uniformly one of these
            numbers.
        exactly_k: always resample k factors. By default half of the pairs resample only one, as the sentence above says
            and the reference does.
        group_label: add ``changed`` ``[N]``, the index of one resampled factor, for GVAE and ML-VAE. With k > 1 it is
            one of them at random: the chapter's incomplete group knowledge.
        stream: arguments of :class:`FactorDataModule`; ``with_factors`` adds the factors of both images.

    >>> from unknot.datamodules import DSprites, PairDataModule
    >>> data = PairDataModule(DSprites(), k=1, group_label=True, batch_size=8, seed=0)
    >>> first, second, changed = next(iter(data.train_dataloader()))
    >>> first.shape, second.shape, changed.shape
    (torch.Size([8, 1, 64, 64]), torch.Size([8, 1, 64, 64]), torch.Size([8]))
    """

    def __init__(
        self,
        dataset: GroundTruthDataset,
        k: int | Literal["rnd"] = "rnd",
        exactly_k: bool = False,
        group_label: bool = False,
        **stream: Any,
    ) -> None:
        super().__init__(dataset, **stream)
        most = dataset.factor_space.num_factors - 1
        if most < 1:
            raise ValueError(
                f"{dataset.name} has one factor; a pair needs at least two, one to change and one to share."
            )
        self.k = check_k(k, most, f"the factors of {dataset.name}")
        self.exactly_k = exactly_k
        self.group_label = group_label

    def draw(self, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Draw one batch of pairs."""
        first = self._factors(generator)
        second, changed = resample_factors(self.dataset.factor_space, first, self.k, self.exactly_k, generator)
        images = self.dataset.observe(torch.cat([first, second]), generator).chunk(2)
        if self.with_factors:
            return (*images, changed, first, second)
        return (*images, changed) if self.group_label else images


def check_k(k: Any, most: int, things: str) -> Any:
    """Return how many things may change, ``"rnd"`` or a whole number up to ``most``."""
    if k != "rnd" and not (isinstance(k, int | np.integer) and 1 <= k <= most):
        raise ValueError(f"k must be 'rnd' or an integer from 1 to {most}, one less than {things}, got {k!r}.")
    return k


def num_changes(n: int, things: int, k: int | Literal["rnd"], exactly_k: bool, generator: torch.Generator) -> Tensor:
    """Number of properties to resample in each of ``n`` pairs: k, or a random number; one for half of the pairs."""
    count = torch.randint(1, things, (n,), generator=generator) if k == "rnd" else torch.full((n,), k)
    return count if exactly_k else torch.where(torch.rand(n, generator=generator) < 0.5, 1, count)


def resample_factors(
    space: FactorSpace,
    first: Tensor,
    k: int | Literal["rnd"],
    exactly_k: bool,
    generator: torch.Generator,
) -> tuple[Tensor, Tensor]:
    """Return factors ``[N, F]`` of the second images, and the index of one resampled factor of each pair ``[N]``."""
    n, num_factors = first.shape
    count = num_changes(n, num_factors, k, exactly_k, generator)
    order = torch.rand(n, num_factors, generator=generator).argsort(1)  # every row a random permutation
    chosen = torch.zeros(n, num_factors, dtype=torch.bool)
    chosen.scatter_(1, order, torch.arange(num_factors) < count[:, None])
    return space.resample(first, chosen, generator), order[:, 0]
