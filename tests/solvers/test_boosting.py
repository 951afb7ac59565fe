"""Boosting variational inference: the oracle, the three steps, the stop, its failure modes, bad input."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from solver_experiments import bimodal, kl_on_grid
from solver_figures import plot_mixture
from torch import distributions as td

from unknot.solvers import boost_variational_inference
from unknot.solvers.boosting import FAMILIES, Family, Mixture, _corrected, _line_search, relbo

SMALL: dict[str, Any] = {"polish": 0, "oracle_steps": 150, "oracle_samples": 16, "starts": 6, "samples": 500}


def normal(*scales: float) -> td.Distribution:
    return td.Independent(td.Normal(torch.zeros(len(scales)).double(), torch.tensor(scales).double()), 1)


@pytest.mark.parametrize("step", ["fixed", "line-search", "fully-corrective"])
def test_beats_the_best_single_gaussian_on_the_bimodal_target(step: str) -> None:
    p = bimodal()
    divergences: list[float] = []
    result = boost_variational_inference(
        p, step=step, max_iterations=5, tol=0, callback=lambda s: divergences.append(kl_on_grid(s.x, p)), **SMALL
    )
    assert divergences[0] == pytest.approx(0.2308, abs=0.01)  # black-box VI is the best single Gaussian
    assert divergences[-1] < 0.15
    assert isinstance(result.x, td.MixtureSameFamily)
    assert kl_on_grid(result.x, p) == pytest.approx(divergences[-1])
    assert result.value == pytest.approx(divergences[-1], abs=5 * result.value_error + 1e-3)
    assert result.elbo == -result.value
    assert result.weights.sum() == pytest.approx(1.0)
    assert len(result.trace) == len(result.trace["gap_error"]) == 6
    assert set(dict(result.trace)) == {"value", "value_error", "gap", "gap_error", "time"}  # type: ignore[call-overload]
    assert "gap estimate" in str(result)
    if step == "fixed":  # (1 - γ) of everything before, γ = 2/(k+2)
        assert result.components == 6
        assert result.weights[-1] == pytest.approx(2 / 7)
        assert result.weights[0] == pytest.approx(math.prod(1 - 2 / (k + 2) for k in range(1, 6)))


def test_relbo_is_the_negative_divergence_from_the_tempered_residual() -> None:
    p, q = normal(1.0, 2.0), normal(1.5, 2.5)
    s = FAMILIES["gaussian"].build({"loc": torch.zeros(2).double(), "raw_scale": torch.zeros(2).double()})
    with torch.no_grad():
        torch.manual_seed(0)
        found = float(relbo(p.log_prob, s, q.log_prob, 0.3, 200_000))
    entropy = float(s.entropy())
    cross = float(-td.kl_divergence(s.base_dist, p.base_dist).sum() + td.kl_divergence(s.base_dist, q.base_dist).sum())
    assert found == pytest.approx(cross + 0.3 * entropy, abs=0.02)  # E log p - E log q + λ H


def test_a_fitted_target_stops_at_once() -> None:
    """Second failure mode: when one component is enough, nothing but tails is left to fit."""
    result = boost_variational_inference(normal(1.0, 0.5), tol=0.02, max_iterations=10, **SMALL)
    assert result.converged
    assert result.iterations <= 1
    assert result.value < 0.02


def test_symmetric_target_does_not_stall() -> None:
    """First failure mode: the residual of a symmetric target is symmetric, and one search from 0 may sit between."""
    td_modes = td.Normal(torch.tensor([-3.0, 3.0]).double(), torch.tensor([0.6, 0.6]).double())
    p = td.MixtureSameFamily(td.Categorical(torch.tensor([0.5, 0.5]).double()), td_modes)
    result = boost_variational_inference(p, max_iterations=3, tol=0, step="fully-corrective", **SMALL)
    assert kl_on_grid(result.x, p) < 0.15  # one mode alone has log 2 = 0.69
    mass = float((result.x.sample((4000,)) > 0).double().mean())
    assert mass == pytest.approx(0.5, abs=0.15)


def three_modes(z: torch.Tensor) -> torch.Tensor:
    """Unnormalised, at the corners of a triangle."""
    centres = torch.tensor([[0.0, 2.5], [-2.2, -1.5], [2.2, -1.5]]).to(z)
    return torch.logsumexp(-0.5 * ((z[:, None] - centres) ** 2).sum(-1) / 0.5**2, dim=1) + 7.0


def test_three_modes_in_two_dimensions() -> None:
    result = boost_variational_inference(three_modes, dim=2, max_iterations=5, tol=0, seed=1, **SMALL)
    samples = result.x.sample((6000,))
    centres = torch.tensor([[0.0, 2.5], [-2.2, -1.5], [2.2, -1.5]]).double()
    nearest = torch.cdist(samples, centres).argmin(1)
    shares = np.bincount(nearest.numpy(), minlength=3) / len(samples)
    np.testing.assert_allclose(shares, 1 / 3, atol=0.15)
    # log Z = 7 + log(3 · 2π · 0.25): the ELBO is below it, by KL.
    log_z = 7 + math.log(3 * 2 * math.pi * 0.25)
    assert -0.1 < log_z - result.elbo < 0.5


@pytest.mark.parametrize("name", list(FAMILIES))
def test_families(name: str) -> None:
    target: td.Distribution = td.MultivariateNormal(
        torch.tensor([1.0, -1.0]).double(), torch.tensor([[1.0, 0.8], [0.8, 1.0]]).double()
    )
    if name == "cauchy":  # its mean of a quadratic is infinite, so the target has tails like its own
        target = td.Independent(td.StudentT(torch.tensor([1.0, 1.0]).double()), 1)
    result = boost_variational_inference(target, name, max_iterations=1, tol=0, **SMALL)
    assert result.x.event_shape == (2,)
    draws = result.x.sample((5,))
    assert result.x.log_prob(draws).shape == (5,)
    if name == "full-gaussian":
        first = boost_variational_inference(target, name, max_iterations=0, tol=0, **SMALL)
        assert first.value < 0.1  # the target is one of the family
        assert boost_variational_inference(target, "gaussian", max_iterations=0, tol=0, **SMALL).value > 0.3


def test_any_reparameterised_family() -> None:
    logistic = Family(
        build=lambda p: td.Independent(
            td.TransformedDistribution(
                td.Uniform(torch.zeros_like(p["loc"]), torch.ones_like(p["loc"]), validate_args=False),
                [td.SigmoidTransform().inv, td.AffineTransform(p["loc"], p["raw"].exp())],
            ),
            1,
        ),
        initial=lambda places, scale: {"loc": places, "raw": torch.full_like(places, math.log(scale))},
        name="logistic",
    )
    result = boost_variational_inference(bimodal(), logistic, max_iterations=3, tol=0, **SMALL)
    assert result.value < 0.25


def test_line_search_and_correction_find_the_weights() -> None:
    family = FAMILIES["gaussian"]
    p = bimodal()

    def log_p(x: torch.Tensor) -> torch.Tensor:
        return p.log_prob(x[..., 0])

    raw = math.log(math.expm1(0.5 - 1e-3))
    parts = {"loc": torch.tensor([[-1.0], [1.0], [0.0]]).double(), "raw_scale": torch.full((3, 1), raw).double()}
    torch.manual_seed(0)
    q, s = (family.build({name: value[i : i + 1] for name, value in parts.items()}) for i in (0, 1))
    one = td.MixtureSameFamily(td.Categorical(torch.ones(1).double()), q)
    assert _line_search(log_p, one, s, 20_000) == pytest.approx(0.6, abs=0.02)
    mixture = Mixture(family)
    mixture.parameters, mixture.weights = parts, np.array([0.5, 0.0, 0.5])
    corrected = _corrected(log_p, mixture, 5000, 0.5)
    weights = dict(zip(corrected.parameters["loc"][:, 0].tolist(), corrected.weights, strict=True))
    assert weights[-1.0] == pytest.approx(0.4, abs=0.03)
    assert weights[1.0] == pytest.approx(0.6, abs=0.03)
    assert weights.get(0.0, 0.0) < 0.03


def test_same_seed_same_mixture_and_the_callers_random_state_is_left_alone() -> None:
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    one, other = (boost_variational_inference(bimodal(), max_iterations=1, seed=5, **SMALL) for _ in range(2))
    assert torch.equal(before, torch.random.get_rng_state())
    assert one.value == other.value
    assert boost_variational_inference(bimodal(), max_iterations=1, seed=6, **SMALL).value != one.value
    stopped = boost_variational_inference(bimodal(), callback=lambda state: True, **SMALL)
    assert stopped.status == "stopped by callback"


def test_regularisation_schedules() -> None:
    asked: list[int] = []

    def schedule(k: int) -> float:
        asked.append(k)
        return 0.5

    boost_variational_inference(bimodal(), max_iterations=2, tol=0, regularisation=schedule, **SMALL)
    assert asked == [1, 2, 3]


def test_improper_targets_warn() -> None:
    with pytest.warns(UserWarning, match="does not fall far out, so it has no finite integral"):
        boost_variational_inference(lambda z: 0 * z.sum(1), dim=2, max_iterations=0, **SMALL)


def half_line(z: torch.Tensor) -> torch.Tensor:
    return torch.where(z[:, 0] > 0, -z[:, 0], -torch.inf)


BAD: list[tuple[str, Callable[[], Any], str]] = [
    ("no dimension", lambda: boost_variational_inference(three_modes), "the dimension of the target is unknown"),
    ("no target", lambda: boost_variational_inference(3), "target is a int: expected a function log p"),
    (
        "another dimension",
        lambda: boost_variational_inference(bimodal(), dim=2),
        r"dim is 2 but the target is over R\^1",
    ),
    (
        "batch of densities",
        lambda: boost_variational_inference(td.Normal(torch.zeros(2), 1.0)),
        r"batch shape \[2\].*Independent",
    ),
    (
        "not finite",
        lambda: boost_variational_inference(half_line, dim=1, **SMALL),
        r"the log density is -inf at .*expected a finite number on all of R\^1; write it for unconstrained",
    ),
    ("NaN", lambda: boost_variational_inference(lambda z: z.sum(1) * torch.nan, dim=1, **SMALL), "log density is nan"),
    (
        "one number for all",
        lambda: boost_variational_inference(lambda z: z.sum(), dim=1, **SMALL),
        r"returned \[\] for points of shape .*one number for each point",
    ),
    ("no tensor", lambda: boost_variational_inference(lambda z: 1.0, dim=1, **SMALL), "returned float for points"),
    ("family", lambda: boost_variational_inference(bimodal(), "gauss"), "family 'gauss' is unknown"),
    ("step", lambda: boost_variational_inference(bimodal(), step="line"), "step 'line' is unknown"),
    ("samples", lambda: boost_variational_inference(bimodal(), samples=1), "samples is 1: expected at least 10"),
    ("starts", lambda: boost_variational_inference(bimodal(), starts=0), "starts is 0"),
    ("weight", lambda: boost_variational_inference(bimodal(), regularisation=-1.0), "regularisation is -1.0"),
]


@pytest.mark.parametrize(("make", "message"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_bad_input(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_pictures(tmp_path: Path) -> None:
    one = boost_variational_inference(bimodal(), max_iterations=0, **SMALL)
    plot_mixture(one, bimodal(), tmp_path / "one.png")
    two = boost_variational_inference(three_modes, dim=2, max_iterations=0, **SMALL)
    plot_mixture(two, three_modes, tmp_path / "two.png", limits=(-4, 4))
    for name in ("one.png", "two.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    three = boost_variational_inference(normal(1.0, 1.0, 1.0), max_iterations=0, **SMALL)
    with pytest.raises(ValueError, match=r"over R\^3: a picture shows one or two"):
        plot_mixture(three, normal(1.0, 1.0, 1.0), tmp_path / "three.png")


def test_polishing_everything_together_comes_closer() -> None:
    p = bimodal()
    rough = boost_variational_inference(p, max_iterations=2, tol=0, **SMALL)
    fine = boost_variational_inference(p, max_iterations=2, tol=0, **{**SMALL, "polish": 200})
    assert kl_on_grid(fine.x, p) < 0.5 * kl_on_grid(rough.x, p)
    assert fine.weights.sum() == pytest.approx(1.0)
    np.testing.assert_array_equal(fine.trace.value, rough.trace.value)  # the trace is that of the boosting
    assert fine.value < rough.value
    assert fine.gap == pytest.approx(max(0.0, rough.gap - (rough.value - fine.value)))
    stopped = boost_variational_inference(p, tol=0, callback=lambda state: True, **{**SMALL, "polish": 200})
    assert stopped.value == stopped.trace.value[-1]  # who stops a run does not wait for a polish
