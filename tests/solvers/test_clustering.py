"""k-means by its semidefinite relaxation."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import torch
from sklearn.datasets import make_blobs
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from solver_experiments import clustering_accuracy, kmeans_curves

from unknot.solvers import SDPKMeans
from unknot.solvers.estimators import SampledDistances, kmeans_sdp

SHARED_DATA = Path(__file__).parents[2].parent / "shared" / "data"
FEATURES = SHARED_DATA / "mnist_kmeans" / "data_features.mat"


@parametrize_with_checks([SDPKMeans(3, max_iter=20)])
def test_scikit_learn_contract(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize("method", ["augmented", "stochastic", "deterministic"])
def test_blobs(method: str) -> None:
    points, truth = make_blobs(60, centers=3, cluster_std=0.3, random_state=0)
    pipeline = make_pipeline(StandardScaler(), SDPKMeans(3, method=method, max_iter=300, random_state=0))
    labels = pipeline.fit_predict(points)
    assert clustering_accuracy(labels, truth) == 1.0
    model = pipeline[-1]
    np.testing.assert_array_equal(pipeline.predict(points), labels)
    assert pipeline.score(points) == pytest.approx(-model.inertia_)
    assert model.relaxation_.shape == (60, 60)
    np.testing.assert_allclose(model.relaxation_.trace(), 3.0, atol=1e-6)
    # A partition is feasible for the relaxation, and its value there is twice its cost.
    members = np.eye(3)[labels]
    partition = members / members.sum(0) @ members.T
    scaled = pipeline[0].transform(points)
    distances = SampledDistances(scaled, 2).distances().numpy()
    assert (distances * partition).sum() == pytest.approx(2 * model.inertia_)


def test_precomputed_distances() -> None:
    points, truth = make_blobs(40, centers=3, cluster_std=0.5, random_state=1)
    distances = SampledDistances(points, 2).distances().numpy()
    model = SDPKMeans(3, metric="precomputed", max_iter=300, random_state=0).fit(distances)
    assert clustering_accuracy(model.labels_, truth) == 1.0
    with pytest.raises(ValueError, match="no centres to predict with"):
        model.predict(distances)


def test_scale_of_the_data_does_not_matter() -> None:
    points, _ = make_blobs(30, centers=2, random_state=2)
    one, other = (SDPKMeans(2, max_iter=50, random_state=0).fit(scale * points) for scale in (1.0, 1000.0))
    np.testing.assert_allclose(one.relaxation_, other.relaxation_, atol=1e-6)
    np.testing.assert_array_equal(one.labels_, other.labels_)
    assert SDPKMeans(1, max_iter=10).fit(points[:1]).labels_.tolist() == [0]
    same = SDPKMeans(2, max_iter=10, random_state=0).fit(np.ones((5, 2)))
    assert same.labels_.shape == (5,)


@pytest.mark.parametrize(("unbiased", "factor"), [(True, 1.0), (False, None)])
def test_sampled_distances(unbiased: bool, factor: float | None) -> None:
    points = np.random.default_rng(0).standard_normal((12, 3))
    f = SampledDistances(points, 4, unbiased=unbiased)
    whole = f.distances().numpy()
    np.testing.assert_allclose(whole, ((points[:, None] - points[None]) ** 2).sum(2), atol=1e-12)
    generator = torch.Generator().manual_seed(0)
    zero = torch.zeros(12, 12, dtype=torch.float64)
    x: Any = None
    mean = torch.stack([f.average(zero.clone(), x, 1.0, generator) for _ in range(3000)]).mean(0).numpy()
    # A pair is drawn with probability s(s-1)/(n(n-1)); the code's n/s leaves E ∇f = (s-1)/(n-1) · D.
    expected = whole if factor else whole * 3 / 11
    np.testing.assert_allclose(mean, expected, rtol=0.25, atol=0.05)


@pytest.mark.skipif(not FEATURES.exists(), reason="needs the MNIST features of kmeans_sdp, which are not ours")
@pytest.mark.parametrize("method", ["deterministic", "stochastic"])
def test_mnist_approaches_the_independent_optimum(method: str) -> None:
    points = scipy.io.loadmat(FEATURES)["digits"].astype(float).T[:60]
    result = kmeans_sdp(
        points, 10, method=method, batch_size=30, beta0=1.0, max_iterations=4000, evaluate_every=500, oracle_tol=1e-4
    )
    best, trace = 1.53381073, result.trace
    assert trace.feasibility is not None
    errors = np.abs(trace.value[[500, 4000]] - best)
    assert errors[1] < errors[0] / 2
    assert trace.feasibility[4000] < trace.feasibility[500] / 2
    # f - f* ≥ -‖y*‖ dist: below the optimum only while infeasible, and the random start was at 90.
    assert errors[1] < (2.0 if method == "deterministic" else 40.0)


def test_curves() -> None:
    points, _ = make_blobs(20, centers=3, random_state=0)
    curves = kmeans_curves(points, 3, iterations=100, batch_size=5)
    for columns in curves.values():
        assert columns["k"][-1] == 100
        assert len(columns["objective"]) == len(columns["k"])
        assert columns["row sums"][-1] < columns["row sums"][1]


BAD: list[tuple[str, Callable[[], Any], str]] = [
    ("clusters", lambda: SDPKMeans(5).fit(np.ones((3, 2))), "n_samples=3 should be >= n_clusters=5"),
    ("no clusters", lambda: SDPKMeans(0).fit(np.ones((3, 2))), "n_clusters=0"),
    ("method", lambda: SDPKMeans(2, method="fast").fit(np.ones((3, 2))), "method 'fast' is unknown"),
    ("metric", lambda: SDPKMeans(2, metric="cosine").fit(np.ones((3, 2))), "metric 'cosine' is unknown"),
    ("distances", lambda: SDPKMeans(2, metric="precomputed").fit(np.triu(np.ones((3, 3)))), "symmetric matrix"),
    ("batch", lambda: SampledDistances(np.ones((3, 2)), 1), "batch_size is 1: expected at least 2"),
    ("missing", lambda: SDPKMeans(2).fit([[np.nan, 1.0], [0.0, 1.0]]), "NaN"),
]


@pytest.mark.parametrize(("make", "message"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_bad_input(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
