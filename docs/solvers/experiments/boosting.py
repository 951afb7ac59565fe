"""Boosting variational inference, with and without its polish, beside plain variational inference of equal size.

    python docs/solvers/experiments/boosting.py                        nine runs
    python docs/solvers/experiments/boosting.py posterior --seeds 1 2  some of them

Three targets, three seeds each: two modes on the line, three modes in the plane, the posterior of a logistic regression
with seven coefficients. Plain inference gets a mixture of as many components as boosting ended with, from random
places, and as much processor time as boosting with its polish took; its learning rate falls along a cosine in that
time. The figure is KL(q ‖ p), or for the posterior E_q[log q - log p], of 50,000 samples; lower is better.
"""

import argparse
import math
import time
from collections.abc import Callable
from typing import Any

import torch
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler
from solver_experiments import bimodal
from torch import Tensor
from torch import distributions as td

from unknot.solvers import boost_variational_inference
from unknot.solvers.boosting import FAMILIES, read_target

CENTRES = torch.tensor([[0.0, 2.5], [-2.2, -1.5], [2.2, -1.5]], dtype=torch.float64)


def three_modes(z: Tensor) -> Tensor:
    """A triangle of Gaussians."""
    return torch.logsumexp(-0.5 * ((z[:, None] - CENTRES) ** 2).sum(-1) / 0.25, dim=1) - math.log(1.5 * math.pi)


def posterior() -> Callable[[Tensor], Tensor]:
    """Of the coefficients of six features and a constant, breast cancer data, prior N(0, 25)."""
    features, labels = load_breast_cancer(return_X_y=True)
    x = torch.from_numpy(StandardScaler().fit_transform(features[:, :6]))
    x = torch.cat([x, torch.ones(len(x), 1, dtype=x.dtype)], dim=1)
    signs = torch.from_numpy(2.0 * labels - 1)
    return lambda w: torch.nn.functional.logsigmoid(signs * (w @ x.t())).sum(1) - 0.5 * (w**2).sum(1) / 25


def plain(log_p: Callable[[Tensor], Tensor], dim: int, components: int, seconds: float, seed: int) -> td.Distribution:
    """Adam on all components and weights together, from random places, for so long."""
    family = FAMILIES["gaussian"]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        start = family.initial(3.0 * torch.randn(components, dim, dtype=torch.float64), 1.0)
        parameters = {name: value.clone().requires_grad_(True) for name, value in start.items()}
        logits = torch.zeros(components, dtype=torch.float64, requires_grad=True)
        adam = torch.optim.Adam([*parameters.values(), logits], lr=0.1)
        begun = time.process_time()
        while (share := (time.process_time() - begun) / seconds) < 1:
            adam.param_groups[0]["lr"] = 0.1 * (0.01 + 0.99 * (1 + math.cos(math.pi * share)) / 2)
            built = family.build(parameters)
            points = built.rsample((32,))
            log_q = torch.logsumexp(built.log_prob(points[:, :, None]) + torch.log_softmax(logits, 0), dim=2)
            adam.zero_grad()
            ((log_q - log_p(points)).mean(0) * torch.softmax(logits, 0)).sum().backward()
            adam.step()
    built = family.build({name: value.detach() for name, value in parameters.items()})
    return td.MixtureSameFamily(td.Categorical(logits=logits.detach()), built, validate_args=False)


def distance(q: td.Distribution, log_p: Callable[[Tensor], Tensor]) -> float:
    """E_q[log q - log p], the same draws for all."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(1234)
        points = q.sample((50_000,))
        return float((q.log_prob(points) - log_p(points)).mean())


def main() -> None:
    """The runs asked for."""
    targets: dict[str, tuple[str, Any, int, int]] = {
        "line": ("two modes, R^1", bimodal(), 1, 4),
        "plane": ("three modes, R^2", three_modes, 2, 4),
        "posterior": ("logistic posterior, R^7", posterior(), 7, 2),
    }
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(targets)} (default: all)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    arguments = parser.parse_args()
    names = arguments.targets or list(targets)
    if unknown := set(names) - set(targets):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; expected {', '.join(targets)}")
    print("| target | seed | components | boosting | polished | plain VI | s boosting | s both |\n|" + "---|" * 8)
    better = 0
    for name, target, dim, iterations in map(targets.__getitem__, names):
        log_p, _ = read_target(target, dim, torch.float64)
        for seed in arguments.seeds:
            figures, times = [], []
            for polish in (0, 300):
                begun = time.process_time()
                result = boost_variational_inference(
                    target, dim=dim, max_iterations=iterations, tol=0, oracle_steps=200, polish=polish, seed=seed
                )
                times.append(time.process_time() - begun)
                figures.append(distance(result.x, log_p))
            figures.append(distance(plain(log_p, dim, result.components, times[1], seed), log_p))
            better += figures[1] <= figures[2]
            shown = " | ".join(f"{figure:.4f}" for figure in figures)
            print(f"| {name} | {seed} | {result.components} | {shown} | {times[0]:.1f} | {times[1]:.1f} |", flush=True)
    print(f"boosting with its polish is at least as good in {better} of {len(names) * len(arguments.seeds)}")


if __name__ == "__main__":
    main()
