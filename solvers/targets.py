"""Densities to be approximated: functions of torch, distributions, Pyro models."""

import math
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch import distributions as td

LogDensity = Callable[[Tensor], Tensor]


def read_target(target: Any, dim: int | None, dtype: torch.dtype) -> tuple[LogDensity, int]:
    """log p as a checked function of points ``[N, d]``, and d."""
    scalar = False
    if isinstance(target, td.Distribution):
        if target.batch_shape:
            raise ValueError(
                f"the target has batch shape {list(target.batch_shape)}: expected one density; wrap it in "
                "torch.distributions.Independent if its batch are the dimensions."
            )
        scalar = not target.event_shape
        found = 1 if scalar else int(target.event_shape[0])
        function: Any = target.log_prob
    elif callable(target):
        known = getattr(target, "dim", None) or dim
        if known is None:
            raise ValueError("the dimension of the target is unknown: pass dim=d.")
        found, function = int(known), target
    else:
        raise ValueError(
            f"target is a {type(target).__name__}: expected a function log p of points [N, d], or a "
            "torch.distributions object."
        )
    if dim is not None and dim != found:
        raise ValueError(f"dim is {dim} but the target is over R^{found}: make them agree.")
    own = dtype if not isinstance(target, td.Distribution) else None

    def log_p(points: Tensor) -> Tensor:
        flat = points.reshape(-1, found)
        values = function(flat[:, 0] if scalar else flat)
        if not isinstance(values, Tensor) or tuple(values.shape) != (len(flat),):
            shape = list(values.shape) if isinstance(values, Tensor) else type(values).__name__
            raise ValueError(
                f"the log density returned {shape} for points of shape {list(flat.shape)}: expected one number for "
                f"each point, [{len(flat)}]."
            )
        bad = ~torch.isfinite(values.detach())
        if bool(bad.any()):
            where = int(torch.nonzero(bad)[0])
            point = [round(number, 4) for number in flat[where].tolist()[:5]]
            raise ValueError(
                f"the log density is {float(values[where].detach())} at {point}: expected a finite number on all of "
                f"R^{found}; write it for unconstrained parameters, for example logarithms of positive ones."
            )
        return values.to(own or dtype).reshape(points.shape[:-1])

    return log_p, found


def check_integrable(log_p: LogDensity, s: td.Distribution, samples: int) -> None:
    """Stretch the first component a thousand and a million times: if p were a density, its ELBO would fall."""
    with torch.no_grad():
        points = s.sample((samples,))
        centre, dim = points.median(0).values, points.shape[-1]
        elbos = []
        for stretch in (1e3, 1e6):
            try:
                far = log_p(centre + stretch * (points - centre))
            except ValueError:  # not finite so far out: nothing can be said
                return
            elbos.append(float((far - s.log_prob(points)).mean()) + dim * math.log(stretch))
    if elbos[1] >= elbos[0]:
        warnings.warn(
            "the log density does not fall far out, so it has no finite integral and no mixture can fit it: check its "
            "sign, and add a prior to parameters that have none.",
            UserWarning,
            stacklevel=3,
        )


def pyro_log_density(model: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """log p(x, z) of a Pyro model over its unconstrained latents, as a target with ``dim`` and ``names``.

    Args:
        model: with continuous latents; ``args`` and ``kwargs`` are its arguments, data included.

    Returns:
        A function of points ``[N, d]``, the latents flattened one after the other in the order of ``names``, a mapping
        from name to the shape of its unconstrained value. ``constrained(points)`` gives them as a dictionary in the
        model's own units.
    """
    try:
        from pyro.infer.mcmc.util import initialize_model  # type: ignore[import-not-found]
    except ImportError as error:
        raise ImportError("a Pyro model needs Pyro: pip install pyro-ppl") from error
    initial, potential, transforms, _ = initialize_model(model, model_args=args, model_kwargs=kwargs)
    return PyroTarget(potential, {name: tuple(value.shape) for name, value in initial.items()}, transforms)


class PyroTarget:
    """The log density of :func:`pyro_log_density`."""

    def __init__(
        self, potential: Callable[[dict[str, Tensor]], Tensor], names: dict[str, tuple[int, ...]], transforms: Any
    ) -> None:
        self._potential, self.names, self._transforms = potential, names, transforms
        self.dim = sum(math.prod(shape) for shape in names.values())

    def _split(self, points: Tensor) -> dict[str, Tensor]:
        sizes = [math.prod(shape) for shape in self.names.values()]
        pieces = torch.split(points, sizes, dim=-1)
        return {
            name: piece.reshape((*points.shape[:-1], *shape))
            for (name, shape), piece in zip(self.names.items(), pieces, strict=True)
        }

    def __call__(self, points: Tensor) -> Tensor:
        """-potential, point by point: a model may do with a batch of its latents what it likes."""
        return torch.stack([-self._potential(self._split(point)) for point in points])

    def constrained(self, points: Tensor) -> dict[str, Tensor]:
        """The latents in the model's own units."""
        return {name: self._transforms[name].inv(value) for name, value in self._split(points).items()}
