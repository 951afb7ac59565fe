"""Likelihoods p(x|z): the meaning of the decoder's outputs, the range of images, and the reconstruction loss.

Your own likelihood subclasses :class:`Likelihood` and is given to a model as a module, or by name once it is
registered with :func:`~unknot.zoo.register_network`.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unknot.arguments import is_number


def at_least_float(x: Tensor) -> Tensor:
    """Convert half precision to float32, so that sums over many pixels are accurate; leave other types unchanged."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


TRACE = 1e-20
"""Gradients below this have no effect: in float32 they are lost in sums, and next to Adam's ε."""


def without_traces(outputs: Tensor) -> Tensor:
    """Return the outputs of a decoder unchanged, but set vanishingly small gradients to zero on a CPU.

    A trained decoder is certain of black pixels: with a logit of -88, σ(l) is subnormal, and for larger logits its
    products with the weights of earlier layers are. CPUs are slow with subnormal numbers: a training step of a trained
    model takes about twice as long with them (``benchmarks/training.py``).
    """
    eager = not torch.compiler.is_compiling()
    if eager and outputs.requires_grad and outputs.is_cpu and outputs.dtype == torch.float32:
        outputs.register_hook(lambda gradient: F.hardshrink(gradient, TRACE))
    return outputs


class Likelihood(nn.Module):
    """Likelihood p(x|z) of images ``[N, C, H, W]``, given decoder outputs of the same shape."""

    support: tuple[float, float] = (0.0, 1.0)
    """The values that images may have."""

    def forward(self, images: Tensor, outputs: Tensor) -> Tensor:
        """Return -log p(x|z), summed over pixels and channels and averaged over the batch."""
        raise NotImplementedError

    def mean(self, outputs: Tensor) -> Tensor:
        """Return the mean image E[x|z]: ``[N, C, H, W]``."""
        raise NotImplementedError


class Bernoulli(Likelihood):
    r"""Bernoulli likelihood of each pixel from its logit, as in the studies: cross-entropy, also for grey pixels.

    .. math:: -\log p(x|z) = -\sum_p x_p \log\sigma(l_p) + (1 - x_p)\log\left(1 - \sigma(l_p)\right)

    .. math:: l = \mathrm{decoder}(z)

    Thesis: section "Disentanglement_lib", paragraph "Inductive Biases".

    >>> Bernoulli()(torch.ones(2, 1, 4, 4), torch.zeros(2, 1, 4, 4)) / 16  # log 2
    tensor(0.6931)
    """

    def forward(self, images: Tensor, outputs: Tensor) -> Tensor:
        """Return the cross-entropy."""
        outputs = at_least_float(outputs)
        return F.binary_cross_entropy_with_logits(outputs, images.to(outputs), reduction="sum") / len(images)

    def mean(self, outputs: Tensor) -> Tensor:
        """Return σ(outputs)."""
        return torch.sigmoid(at_least_float(outputs))


class ContinuousBernoulli(Bernoulli):
    r"""Continuous Bernoulli (Loaiza-Ganem & Cunningham, 2019), normalised over [0, 1], for grey images.

    .. math:: p(x|\lambda) = C(\lambda)\, \lambda^x (1-\lambda)^{1-x}

    .. math:: C(\lambda) = \frac{l}{\tanh(l/2)}

    .. math:: \lambda = \sigma(l)

    >>> model = ContinuousBernoulli()
    >>> model.mean(torch.zeros(1, 1, 1, 1)).item()
    0.5
    """

    def forward(self, images: Tensor, outputs: Tensor) -> Tensor:
        """Return the cross-entropy minus log C(λ)."""
        logits = at_least_float(outputs)
        near = logits.abs() < 1e-2  # the quotients below are 0 / 0 at zero
        apart = torch.where(near, 1.0, logits)
        log_c = torch.where(near, math.log(2) + logits**2 / 12, (apart / torch.tanh(apart / 2)).log())
        return super().forward(images, outputs) - log_c.sum() / len(images)

    def mean(self, outputs: Tensor) -> Tensor:
        """Return λ / (2 λ - 1) - 1 / l, which differs from λ."""
        logits = at_least_float(outputs)
        near = logits.abs() < 1e-2
        apart = torch.where(near, 1.0, logits)
        exact = torch.sigmoid(apart) / torch.tanh(apart / 2) - 1 / apart
        return torch.where(near, 0.5 + logits / 12, exact)


class Gaussian(Likelihood):
    r"""Gaussian likelihood N(x; m(z), σ² I).

    .. math:: -\log p(x|z) = \frac{1}{2\sigma^2}\,\|x - m(z)\|^2 + \mathrm{const}

    With a fixed variance the loss is ‖x - m‖² / (2 σ²), without the constant; σ² = ½ gives the summed squared error,
    the reference's ``l2_loss``. With a learned variance, shared by all pixels, it is the full -log density, which can
    be negative.

    Args:
        variance: σ², a positive number, or ``"learned"``.
        bounded: means are σ(outputs), and images in [0, 1]; otherwise the outputs are the means, and images can have
            any finite values.

    >>> Gaussian()(torch.ones(1, 1, 2, 2), torch.zeros(1, 1, 2, 2))  # 4 · (1 - ½)²
    tensor(1.)
    >>> Gaussian(variance="learned", bounded=False).mean(torch.full((1, 1, 1, 1), -3.0)).item()
    -3.0
    """

    def __init__(self, variance: float | str = 0.5, bounded: bool = True) -> None:
        super().__init__()
        if variance != "learned" and not (is_number(variance) and 0 < float(variance) < math.inf):
            raise ValueError(f"variance must be positive and finite, or 'learned', got {variance!r}.")
        self.variance = variance
        self.bounded = bool(bounded)
        self.support = (0.0, 1.0) if bounded else (-math.inf, math.inf)
        if variance == "learned":
            self.log_variance = nn.Parameter(torch.tensor(math.log(0.5)))

    def forward(self, images: Tensor, outputs: Tensor) -> Tensor:
        """Return ‖x - m‖² / (2 σ²), plus ½ log 2 π σ² for each value if σ is learned."""
        mean = self.mean(outputs)
        error = F.mse_loss(mean, images.to(mean), reduction="sum") / len(images)
        if isinstance(self.variance, str):
            log_variance = at_least_float(self.log_variance)
            constant = math.prod(images.shape[1:]) / 2 * (math.log(2 * math.pi) + log_variance)
            return error / (2 * log_variance.exp()) + constant
        return error / (2 * self.variance)

    def mean(self, outputs: Tensor) -> Tensor:
        """Return m(z)."""
        outputs = at_least_float(outputs)
        return torch.sigmoid(outputs) if self.bounded else outputs
