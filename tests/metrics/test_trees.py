"""Boosted trees against scikit-learn's GradientBoostingClassifier, and where they could trip."""

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from sklearn.ensemble import GradientBoostingClassifier

from unknot.metrics import functional, score
from unknot.metrics.functional import dci
from unknot.metrics.functional.tree_splits import Splitter
from unknot.metrics.functional.trees import ROUNDS, boost, fit_trees


def draw(n=240, d=3, sizes=(3, 2), seed=0, noise=0.5):
    rng = np.random.default_rng(seed)
    factors = rng.integers(0, sizes, size=(n, len(sizes)))
    return factors @ rng.normal(size=(len(sizes), d)) + noise * rng.normal(size=(n, d)), factors


def scores(trees, codes):
    """Return the sum of the trees, ``[C, N]``, walked node by node: an independent reading of how they are stored."""
    binned = np.stack([np.searchsorted(edges, column) for edges, column in zip(trees.edges, codes.T, strict=True)])
    code, edge, value = (part.numpy().astype(float) for part in (trees.code, trees.edge, trees.value))
    total = np.repeat(trees.prior.numpy().astype(float)[:, None], len(codes), axis=1)
    samples = np.arange(len(codes))
    for r in range(ROUNDS):
        for c in range(len(total)):
            node = np.zeros(len(codes), dtype=int)
            for _ in range(3):
                right = binned[code[r, node, c].astype(int), samples] > edge[r, node, c]
                node = 2 * node + 1 + right
            total[c] += value[r, node - 7, c]
    return total


@pytest.mark.parametrize("sizes", [(2,), (3,), (5,)])
def test_grows_the_trees_of_scikit_learn(sizes):
    # One code with fewer values than bins: the same thresholds, and no ties between codes to be broken at random.
    codes, factors = draw(400, 1, sizes, seed=sum(sizes))
    codes = codes.round(1)
    reference = GradientBoostingClassifier(random_state=0).fit(codes, factors[:, 0])
    trees = boost(codes, factors)
    grid = np.linspace(codes.min() - 1, codes.max() + 1, 301)[:, None]
    ours, theirs = scores(trees, grid), reference.decision_function(grid).reshape(len(grid), -1).T
    np.testing.assert_allclose(
        ours - ours.mean(0) * (len(ours) > 1), theirs - theirs.mean(0) * (len(ours) > 1), atol=2e-3
    )
    np.testing.assert_array_equal(trees.predict(grid)[:, 0], reference.predict(grid))


def test_importances_and_predictions_are_those_of_scikit_learn():
    codes, factors = draw(250, 3, (4, 2))
    ours, theirs = boost(codes, factors), fit_trees(codes, factors, "sklearn")
    np.testing.assert_allclose(ours.importance, theirs.importance, atol=0.01)
    np.testing.assert_allclose(ours.importance.sum(0), 1)
    fresh, _ = draw(500, 3, (4, 2), seed=0)
    assert (ours.predict(fresh) == theirs.predict(fresh)).mean() > 0.98


def test_predictions_follow_the_stored_trees():
    codes, factors = draw(150, 3, (4, 2))
    trees = boost(codes, factors)
    total = scores(trees, codes)
    expected = np.stack([total[:4].argmax(0), total[4] > 0], axis=1)
    np.testing.assert_array_equal(trees.predict(codes), expected)


def best_split(codes, residual):
    """Friedman's criterion at every threshold of every code, in double precision: the best gain, and all codes."""
    found = np.zeros(codes.shape[1])
    for d, column in enumerate(codes.T):
        order = np.argsort(column, kind="stable")
        left, n = residual[order].cumsum()[:-1], len(column)
        count = np.arange(1, n)
        gain = (left - count * residual.mean()) ** 2 / (count * (n - count))
        found[d] = np.where(np.diff(column[order]) > 0, gain, 0).max(initial=0)
    return found


@pytest.mark.parametrize("n", [3, 17, 300, 6000])
@pytest.mark.parametrize("kind", ["distinct", "ties", "mixed"])
def test_no_threshold_is_better_than_the_one_found(n, kind):
    rng = np.random.default_rng(n)
    codes = rng.normal(size=(n, 3))
    if kind == "ties":
        codes = codes.round(1)
    if kind == "mixed":
        codes[rng.random(codes.shape) < 0.5] = 0.25
    residual = rng.normal(size=(n, 4)) * (rng.random((n, 4)) < [1, 0.5, 0.1, 0.02]) ** 2
    residual[:, 3] += np.sin(3 * codes[:, 1])
    tree = Splitter(codes).grow(torch.from_numpy(residual).float(), torch.Generator().manual_seed(0))
    binned = np.stack([np.unique(column, return_inverse=True)[1] for column in codes.T], axis=1)
    for c, column in enumerate(residual.T):
        leaf = tree.leaf[:, c].numpy()
        for depth in range(3):
            for number in range(2**depth):
                inside = leaf >> (3 - depth) == number
                best = best_split(codes[inside], column[inside]) if inside.sum() > 1 else np.zeros(3)
                goes_right = (leaf[inside] >> (2 - depth)) & 1
                node = 2**depth - 1 + number
                code, edge = int(tree.code[node, c]), float(tree.edge[node, c])
                if best.max() < 1e-9:
                    continue
                np.testing.assert_array_equal(goes_right, binned[inside, code] > edge)
                part, right = column[inside], goes_right.astype(bool)
                centred = part[~right].sum() - (~right).sum() * part.mean()
                gain = centred**2 / max((~right).sum() * right.sum(), 1)
                assert gain == pytest.approx(best.max(), rel=1e-4), (c, depth, number)


def test_ten_thousand_samples_lose_nothing():
    codes, factors = draw(5000, 2, (3,), noise=0.4)
    trees, reference = boost(codes, factors), fit_trees(codes, factors, "sklearn")
    np.testing.assert_allclose(trees.importance, reference.importance, atol=0.003)
    fresh, _ = draw(1000, 2, (3,), noise=0.4, seed=1)
    assert (trees.predict(fresh) == reference.predict(fresh)).mean() > 0.98


def test_few_samples_and_many_classes_predict_as_well():
    # Residuals become small and splits equally good: neither may be left to the first code, nor taken for rounding.
    ours, theirs = [], []
    for seed in range(3):
        codes, factors = draw(160, 6, (12, 9), seed=seed, noise=1.0)
        train, test = slice(0, 60), slice(60, None)
        for backend, accuracies in (("unknot", ours), ("sklearn", theirs)):
            trees = fit_trees(codes[train], factors[train], backend, seed)
            accuracies.append((trees.predict(codes[test]) == factors[test]).mean())
    assert np.mean(ours) == pytest.approx(np.mean(theirs), abs=0.03)


def test_copies_of_a_code_share_its_importance():
    # scikit-learn draws one of them at every node
    codes, factors = draw(200, 1, (4,))
    copies = np.hstack([codes, codes, codes + 1e-9])
    importance = boost(copies, factors).importance[:, 0]
    np.testing.assert_allclose(importance, 1 / 3, atol=0.01)
    np.testing.assert_allclose(fit_trees(copies, factors, "sklearn").importance[:, 0], 1 / 3, atol=0.15)


def test_nothing_is_random():
    codes, factors = draw(100)
    first, second = boost(codes, factors), boost(codes.copy(), factors.copy())
    np.testing.assert_array_equal(first.importance, second.importance)
    assert all((a == b).all() for a, b in zip(first[3:6], second[3:6], strict=True))
    seeded = [fit_trees(codes, factors[:, :1], "sklearn", seed=3).importance for _ in range(2)]
    np.testing.assert_array_equal(*seeded)


def test_factors_do_not_see_each_other():
    codes, factors = draw(120, 3, (3, 2))
    both, first, second = boost(codes, factors), boost(codes, factors[:, :1]), boost(codes, factors[:, 1:])
    np.testing.assert_allclose(both.importance, np.hstack([first.importance, second.importance]), atol=1e-6)
    np.testing.assert_array_equal(both.predict(codes), np.hstack([first.predict(codes), second.predict(codes)]))


@pytest.mark.parametrize("backend", ["unknot", "sklearn"])
def test_constant_factors_are_predicted_and_leave_no_importance(backend):
    codes, factors = draw(60, 2, (3, 2))
    factors[:, 1] = 17
    trees = fit_trees(codes, factors, backend)
    assert (trees.predict(codes + 5)[:, 1] == 17).all()
    np.testing.assert_array_equal(trees.importance[:, 1], 0)
    assert trees.importance[:, 0].sum() == pytest.approx(1)
    alone = fit_trees(codes, factors[:, 1:], backend)
    assert (alone.predict(codes) == 17).all()
    assert alone.importance.tolist() == [[0.0], [0.0]]


def test_constant_codes_predict_the_commonest_class():
    _, factors = draw(90, 1, (3, 2))
    factors[:60] = [2, 1]
    trees = boost(np.full((90, 2), 0.1), factors)
    assert (trees.predict(np.array([[-4.0, 1e9]])) == [[2, 1]]).all()
    np.testing.assert_array_equal(trees.importance, 0)


def test_labels_are_returned_as_given():
    codes, factors = draw(150, 2, (3, 2), noise=0.05)
    labels = np.array([-7, 10**15, 3])
    np.testing.assert_array_equal(
        boost(codes, labels[factors]).predict(codes), labels[boost(codes, factors).predict(codes)]
    )


def test_more_classes_than_repeats():
    codes = np.arange(12.0)[:, None]
    factors = np.arange(12)[:, None]  # every sample a class of its own
    trees = boost(codes, factors)
    reference = fit_trees(codes, factors, "sklearn")
    np.testing.assert_array_equal(trees.predict(codes), factors)
    np.testing.assert_array_equal(reference.predict(codes), factors)


def test_a_class_with_one_sample():
    codes, factors = draw(80, 2, (2,))
    factors[5] = 9
    codes[5] = 50
    trees = boost(codes, factors)
    assert trees.predict(np.array([[60.0, 60.0]])).tolist() == [[9]]


@pytest.mark.parametrize("scale", [1e-300, 1.5e308])
def test_only_the_order_of_codes_matters(scale):
    codes, factors = draw(80, 2, (3,))
    codes = (codes / np.abs(codes).max()).round(2)
    trees, scaled = boost(codes, factors), boost(codes * scale, factors)
    np.testing.assert_allclose(scaled.importance, trees.importance, atol=1e-6)
    np.testing.assert_array_equal(scaled.predict(codes * scale), trees.predict(codes))


def test_unseen_ranges_belong_to_the_outermost_leaves():
    codes, factors = draw(80, 1, (4,), noise=0.1)
    trees = boost(codes, factors)
    ends = trees.predict(np.array([codes.min(0), codes.max(0)]))
    np.testing.assert_array_equal(trees.predict(np.array([[-1e300], [1e300]])), ends)


def test_a_single_sample():
    assert boost(np.ones((1, 2)), np.array([[4, 2]])).predict(np.zeros((3, 2))).tolist() == [[4, 2]] * 3


def test_unknown_backends_are_named():
    with pytest.raises(ValueError, match="backend must be 'unknot', 'sklearn' or 'hist', got 'lightgbm'"):
        fit_trees(np.ones((3, 1)), np.arange(3)[:, None], "lightgbm")


def representations(n, sizes, angles=(), extra=False, seed=0):
    """Codes of a known quality by name: perfect, rotated by growing angles, duplicated, merged, noisy, dead, wide."""
    rng = np.random.default_rng(seed)
    factors = rng.integers(0, sizes, size=(n, len(sizes)))
    centred = (factors - factors.mean(0)) / factors.std(0)
    k = len(sizes)

    def rotated(angle):
        turn = np.eye(k)
        c, s = np.cos(angle), np.sin(angle)
        for i in range(k - 1):
            plane = np.eye(k)
            plane[i : i + 2, i : i + 2] = [[c, -s], [s, c]]
            turn = turn @ plane
        return centred @ turn

    def noise(width, scale=1.0):
        return scale * rng.normal(size=(n, width))

    merged = np.hstack([centred[:, :1] * 10 + centred[:, 1:2], centred[:, 2:]])
    chosen = {
        "perfect": centred + noise(k, 0.01),
        "duplicated": np.hstack([centred, centred]),
        "merged": merged + noise(k - 1, 0.01),
        "noisy": centred + noise(k, 0.7),
        "dead": np.hstack([rotated(0.2), noise(2, 0.01)]),
        **{f"rotated {angle:.2f}": rotated(angle) + noise(k, 0.05) for angle in angles},
    }
    if extra:
        chosen |= {f"noise {scale}": centred + noise(k, scale) for scale in (0.1, 0.3, 1.0, 2.0)}
        chosen |= {f"dead {width}": np.hstack([centred + noise(k, 0.3), noise(width, 0.01)]) for width in (1, 3, 6)}
        chosen |= {f"wide {d}": centred @ rng.normal(size=(k, d)) + noise(d, 0.2) for d in (2, 5, 8, 12)}
        chosen |= {f"duplicated {s}": np.hstack([centred + noise(k, s), centred + noise(k, s)]) for s in (0.1, 0.5)}
        chosen |= {"nothing": noise(4), "squared": centred**2 + noise(k, 0.1), "one": centred[:, :1] + noise(1, 0.1)}
        chosen |= {f"merged {s}": merged + noise(k - 1, s) for s in (0.1, 0.5)}
    return chosen, factors


def compare(chosen, factors):
    train = len(factors) * 2 // 3
    results = []
    for codes in chosen.values():
        split = codes[:train], factors[:train], codes[train:], factors[train:]
        both = [dci(*split, backend=backend) for backend in ("unknot", "sklearn")]
        results.append([[score["disentanglement"], score["completeness"]] for score in both])
    return np.array(results)  # [representation, backend, D or C]


def test_dci_hardly_depends_on_the_backend():
    chosen, factors = representations(240, (2, 3, 3), angles=(0.5,))
    assert len(chosen) == 6
    scores = compare(chosen, factors)
    assert np.abs(scores[:, 0] - scores[:, 1]).max() <= 0.03


@pytest.mark.slow
def test_dci_of_thirty_representations_hardly_depends_on_the_backend():
    chosen, factors = representations(1500, (3, 4, 6), angles=np.linspace(0.05, 0.785, 7), extra=True)
    assert len(chosen) == 30
    scores = compare(chosen, factors)
    assert np.abs(scores[:, 0] - scores[:, 1]).max() <= 0.03
    for kind in range(2):
        assert spearmanr(scores[:, 0, kind], scores[:, 1, kind]).statistic >= 0.98
    rounded = {name: np.round(codes / np.ptp(codes, axis=0), 2) for name, codes in chosen.items()}
    scores = compare(rounded, factors)
    assert np.abs(scores[:, 0] - scores[:, 1]).max() <= 0.03
    for kind in range(2):
        assert spearmanr(scores[:, 0, kind], scores[:, 1, kind]).statistic >= 0.98


def test_trees_over_bins_predict_and_have_no_importances():
    rng = np.random.default_rng(0)
    factors = rng.integers(0, 4, size=(600, 2))
    codes = factors + 0.2 * rng.normal(size=(600, 2))
    rows = codes[:400], factors[:400], codes[400:], factors[400:]
    exact, binned = (functional.downstream_accuracy(*rows, "gbt", backend) for backend in ("unknot", "hist"))
    assert abs(exact - binned) < 0.03
    with pytest.raises(ValueError, match="no importances"):
        functional.dci(*rows, backend="hist")
    scores = score(codes, factors, ["dci", "downstream_gbt"], backend="hist")
    again = score(codes, factors, ["dci", "downstream_gbt"])
    assert scores["dci"] == again["dci"]
    assert abs(scores["downstream_gbt"] - again["downstream_gbt"]) < 0.05
