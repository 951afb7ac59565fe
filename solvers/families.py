"""Families of densities, and mixtures of them: the atoms and iterates of boosting variational inference."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch import distributions as td
from torch.nn.functional import softplus

Parameters = dict[str, Tensor]


@dataclass(frozen=True)
class Family:
    """A family of densities on R^d whose samples are differentiable in its parameters.

    Attributes:
        build: unconstrained parameters, each ``[..., *shape]``, → a distribution with ``rsample``, of batch shape
            ``[...]`` and event shape ``[d]``.
        initial: (locations ``[R, d]``, scale) → parameters of R densities around them.
        name: for reports.
    """

    build: Callable[[Parameters], td.Distribution]
    initial: Callable[[Tensor, float], Parameters]
    name: str = "family"


MIN_SCALE = 1e-3
"""Scales of the built-in families are above this: the bounded parameters that the analysis asks for."""


def _scale(raw: Tensor) -> Tensor:
    return softplus(raw) + MIN_SCALE


def _inverse_softplus(scale: float) -> float:
    return math.log(math.expm1(scale)) if scale < 30 else scale


def _location_scale(kind: Callable[..., td.Distribution], name: str) -> Family:
    def build(parameters: Parameters) -> td.Distribution:
        return td.Independent(kind(parameters["loc"], _scale(parameters["raw_scale"]), validate_args=False), 1)

    def initial(locations: Tensor, scale: float) -> Parameters:
        return {"loc": locations, "raw_scale": torch.full_like(locations, _inverse_softplus(scale))}

    return Family(build, initial, name)


def _full_gaussian() -> Family:
    def build(parameters: Parameters) -> td.Distribution:
        lower, raw = parameters["lower"].tril(-1), parameters["raw_scale"]
        factor = lower + torch.diag_embed(_scale(raw))
        return td.MultivariateNormal(parameters["loc"], scale_tril=factor, validate_args=False)

    def initial(locations: Tensor, scale: float) -> Parameters:
        dim = locations.shape[-1]
        return {
            "loc": locations,
            "raw_scale": torch.full_like(locations, _inverse_softplus(scale)),
            "lower": torch.zeros(*locations.shape, dim, dtype=locations.dtype),
        }

    return Family(build, initial, "full Gaussian")


FAMILIES = {
    "gaussian": _location_scale(td.Normal, "diagonal Gaussian"),
    "full-gaussian": _full_gaussian(),
    "laplace": _location_scale(td.Laplace, "Laplace"),
    "cauchy": _location_scale(td.Cauchy, "Cauchy"),
}
"""The families by name; the first three are in the thesis' experiments, Cauchy in its lemma."""


class Mixture:
    """q = Σ w_i s_i, by weights and stacked parameters."""

    def __init__(self, family: Family) -> None:
        self.family = family
        self.weights = np.zeros(0)
        self.parameters: Parameters = {}

    def __len__(self) -> int:
        return len(self.weights)

    def components(self) -> td.Distribution:
        """The s_i, as one batch."""
        return self.family.build(self.parameters)

    def distribution(self, weights: np.ndarray | None = None) -> td.MixtureSameFamily:
        """q, or with other weights."""
        values = next(iter(self.parameters.values()))
        probabilities = torch.as_tensor(self.weights if weights is None else weights).to(values)
        return td.MixtureSameFamily(td.Categorical(probabilities), self.components(), validate_args=False)

    def with_component(self, parameters: Parameters, step: float) -> "Mixture":
        """(1 - γ) q + γ s."""
        other = Mixture(self.family)
        other.weights = np.append((1 - step) * self.weights, step)
        other.parameters = (
            {name: torch.cat([self.parameters[name], new]) for name, new in parameters.items()}
            if len(self)
            else {name: new.clone() for name, new in parameters.items()}
        )
        return other

    def pruned(self) -> "Mixture":
        """Without components of no weight."""
        kept = np.flatnonzero(self.weights > 1e-12)
        other = Mixture(self.family)
        other.weights = self.weights[kept] / self.weights[kept].sum()
        other.parameters = {name: value[torch.from_numpy(kept)] for name, value in self.parameters.items()}
        return other
