"""Hausdorff factorised support: latents whose support is a product, so that factors may be correlated.

    min E_{p(x)} [ -E_{q(z|x)} log p(x|z) + β KL(q(z|x) || p(z)) ] + γ Σ_{(a,b)} d_H(S_a × S_b, S_ab)

Independence requires every combination of values to be as likely as the product of its marginals. A factorised support
only requires every combination to occur (Roth et al., 2023, "Disentanglement of Correlated Factors via Hausdorff
Factorized Support").
"""

from typing import Any

import torch
from torch import Tensor

from unknot.arguments import not_negative, whole
from unknot.zoo.vae import VAE, Posterior


def factorised_support(codes: Tensor, pairs: Tensor | None = None, average: bool = False) -> Tensor:
    """Hausdorff distance between the joint support of two latents and the product of their supports, summed over pairs.

        Σ_(a,b) max_(i,j) min_k (z_ia - z_ka)² + (z_jb - z_kb)²

    The nearest sample k of every recombination (i, j) and the recombination that is farthest from its own are found
    without a gradient; only the distance between those two is differentiated. Value and gradient are those of the whole
    formula, at a fraction of the cost. Both ends of the distance have a gradient.

    Args:
        codes: samples ``[N, D]``, such as the means of a batch.
        pairs: columns ``[P, 2]``; by default all D (D - 1) / 2 pairs.
        average: take the mean over recombinations of two samples instead of the farthest one.

    >>> square = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    >>> factorised_support(square), factorised_support(square[:3])  # one corner is missing
    (tensor(0.), tensor(1.))
    """
    if pairs is None:
        pairs = all_pairs(codes.shape[1], codes.device)
    n = len(codes)
    if not len(pairs):
        return codes.sum() * 0
    with torch.no_grad():
        apart = ((codes.T[:, :, None] - codes.T[:, None]) ** 2)[pairs]  # [P, 2, N, N]
        # [N, N, N] at a time, in the same memory: all pairs together do not fit into a CPU cache.
        room = torch.empty(n, n, n, dtype=codes.dtype, device=codes.device)
        shortest = torch.stack([torch.add(x[:, None], y[None], out=room).amin(2) for x, y in apart])  # [P, N, N]
        if average:
            i, j = (
                index.flatten() for index in torch.meshgrid(2 * [torch.arange(n, device=codes.device)], indexing="ij")
            )
            i, j = i.expand(len(pairs), -1), j.expand(len(pairs), -1)
        else:
            farthest = shortest.flatten(1).argmax(1, keepdim=True)  # [P, 1]
            i, j = farthest // n, farthest % n
        pair = torch.arange(len(pairs), device=codes.device)[:, None]
        k = (apart[pair, 0, i] + apart[pair, 1, j]).argmin(2)
    first, second = pairs[:, :1], pairs[:, 1:]
    distances = (codes[i, first] - codes[k, first]) ** 2 + (codes[j, second] - codes[k, second]) ** 2
    # A sample recombined with itself is that sample: the mean leaves these out.
    return distances.sum() / max(n * (n - 1), 1) if average else distances.sum()


def all_pairs(latent_dim: int, device: torch.device | None = None) -> Tensor:
    """Return all pairs of different latents, ``[D (D - 1) / 2, 2]``."""
    return torch.combinations(torch.arange(latent_dim, device=device))


class HFSVAE(VAE):
    r"""VAE with Hausdorff factorised support (Roth et al., 2023): latents may correlate, but every combination must
    occur.

    .. math::
        \max\; \mathbb{E}_{p(x)}\left[\mathbb{E}_{q_\phi(z|x)}[\log p_\theta(x|z)] - \beta\,
        D_{KL}(q_\phi(z|x)\,\|\,p(z))\right] - \gamma \sum_{(a,b)} \max_{i,j} \min_k \left\|(z_{ia}, z_{jb}) -
        (z_{ka}, z_{kb})\right\|^2

    The distance is computed on the means of the batch, for ``num_pairs`` random pairs of latents. γ is relative to -log
    p(x|z) summed over pixels; the paper searches β in 0 to 16 and γ in 0.1 to 10,000, and γ in 80 to 2,000 with β = 0.

    Args:
        gamma: weight γ of the distance.
        beta: weight of the KL; 0, the default, is the paper's variant without a prior.
        num_pairs: pairs of latents at each step, or all if there are fewer.
        vae: arguments of :class:`~unknot.zoo.VAE`.

    >>> model = HFSVAE(gamma=300.0)
    >>> sorted(model.losses(torch.rand(4, 1, 64, 64)))
    ['elbo', 'factorised_support', 'kl', 'loss', 'reconstruction']
    """

    family = "factorised-support"

    def __init__(self, gamma: float = 300.0, beta: float = 0.0, num_pairs: int = 25, **vae: Any) -> None:
        super().__init__(**vae)
        not_negative(gamma=gamma, beta=beta)
        self.gamma, self.beta = gamma, beta
        self.num_pairs = whole("num_pairs", num_pairs)

    def regularizer(self, posterior: Posterior, z: Tensor, kl: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return β KL(q(z|x)

        p(z)) + γ Σ d_H(S_a × S_b, S_ab).
        """
        pairs = all_pairs(self.latent_dim, z.device)
        pairs = pairs[torch.randperm(len(pairs), device=z.device)[: self.num_pairs]]
        distance = factorised_support(posterior.mean, pairs)
        return self.beta * kl + self.gamma * distance, {"factorised_support": distance}
