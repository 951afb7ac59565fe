"""DCI, SAP, modularity, explicitness, IRS and downstream accuracy: independent computations, anchors, invariants."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.metrics import mutual_info_score, roc_auc_score
from sklearn.model_selection import KFold
from sklearn.preprocessing import StandardScaler, label_binarize
from sklearn.svm import LinearSVC

from unknot.metrics.functional import (
    dci,
    downstream_accuracy,
    explicitness,
    importance_matrix,
    information_matrix,
    irs,
    mig,
    modularity,
    predictability_matrix,
    sap,
)

TEN = (2, 3, 2, 3, 2, 3, 2, 3, 2, 3)  # ten factors, as in the anchors


def draw(n=300, d=3, sizes=(3, 4), seed=0, noise=0.3):
    rng = np.random.default_rng(seed)
    factors = rng.integers(0, sizes, size=(n, len(sizes)))
    return factors @ rng.normal(size=(len(sizes), d)) + noise * rng.normal(size=(n, d)), factors


def split(codes, factors, share=2 / 3):
    train = round(share * len(codes))
    return codes[:train], factors[:train], codes[train:], factors[train:]


def binned(column, bins=20):
    return np.digitize(column, np.histogram(column, bins)[1][:-1])


def information(codes, factors):
    return np.array([[mutual_info_score(binned(code), factor) for factor in factors.T] for code in codes.T])


# Each score once more, the way the reference computes it


def reference_dci(importance):
    """Entropies of base K and D after adding 1e-11, weighted by the share of the importance."""
    scores = []
    for rows in (importance, importance.T):
        p = rows + 1e-11
        p = p / p.sum(1, keepdims=True)
        per_row = 1 + (p * np.log(p)).sum(1) / np.log(rows.shape[1])
        scores.append((per_row * rows.sum(1)).sum() / rows.sum())
    return scores


def test_dci_with_scikit_learn_is_the_reference():
    data = split(*draw(240))
    models = [GradientBoostingClassifier(random_state=4).fit(data[0], factor) for factor in data[1].T]
    importance = np.stack([model.feature_importances_ for model in models], axis=1)
    scores = dci(*data, backend="sklearn", seed=4)
    np.testing.assert_allclose(scores["importance"], importance, atol=1e-12)
    d, c = reference_dci(importance)
    assert scores["disentanglement"] == pytest.approx(d, abs=1e-8)
    assert scores["completeness"] == pytest.approx(c, abs=1e-8)
    accuracy = np.mean([model.score(data[2], factor) for model, factor in zip(models, data[3].T, strict=True)])
    assert scores["informativeness_test"] == pytest.approx(accuracy)
    fitted = np.mean([model.score(data[0], factor) for model, factor in zip(models, data[1].T, strict=True)])
    assert scores["informativeness_train"] == pytest.approx(fitted)


def test_sap_is_the_gap_in_accuracy_of_one_code_svms():
    data = split(*draw(240))
    accuracy = np.zeros((3, 2))
    for d in range(3):
        for k in range(2):
            svm = LinearSVC(C=0.01, class_weight="balanced").fit(data[0][:, [d]], data[1][:, k])
            accuracy[d, k] = svm.score(data[2][:, [d]], data[3][:, k])
    np.testing.assert_allclose(predictability_matrix(*data).values, accuracy, atol=0.03)  # the solver may differ
    ranked = np.sort(accuracy, axis=0)
    assert sap(*data) == pytest.approx(np.mean(ranked[-1] - ranked[-2]), abs=0.03)


def test_continuous_sap_is_the_gap_in_squared_correlation():
    data = split(*draw(240))
    squared = np.corrcoef(np.hstack(data[:2]), rowvar=False)[:3, 3:] ** 2
    np.testing.assert_allclose(predictability_matrix(*data, continuous_factors=True).values, squared)
    ranked = np.sort(squared, axis=0)
    assert sap(*data, continuous_factors=True) == pytest.approx(np.mean(ranked[-1] - ranked[-2]))


def test_modularity_is_the_deviation_from_the_ideal_template():
    codes, factors = draw(500, 4, (3, 4, 5))
    deviations = []
    for row in information(codes, factors):
        template = np.where(np.arange(3) == row.argmax(), row.max(), 0)
        deviations.append(((row - template) ** 2).sum() / (row.max() ** 2 * 2))
    assert modularity(codes, factors) == pytest.approx(1 - np.mean(deviations), abs=1e-9)


@pytest.mark.parametrize("sizes", [(3, 5), (2, 4)])
def test_explicitness_is_the_mean_area_under_one_against_rest_curves(sizes):
    data = split(*draw(300, sizes=sizes, noise=1.5))
    scaler = StandardScaler().fit(data[0])
    areas = []
    for k, size in enumerate(sizes):
        model = LogisticRegression().fit(scaler.transform(data[0]), data[1][:, k])
        probabilities = model.predict_proba(scaler.transform(data[2]))
        truth = label_binarize(data[3][:, k], classes=range(size)) if size > 2 else np.eye(2)[data[3][:, k]]
        areas.append(roc_auc_score(truth, probabilities, average="macro"))
    assert 0.5 < explicitness(*data) < 0.99
    assert explicitness(*data) == pytest.approx(np.mean(areas), abs=1e-9)


def reference_irs(codes, factors, bins=20, quantile=0.99):
    codes = codes[:, codes.var(0) > 0]
    largest = np.abs(codes - codes.mean(0)).max(0)
    scores = np.zeros((codes.shape[1], factors.shape[1]))
    for k, factor in enumerate(factors.T):
        classes = factor if bins is None else binned(factor, bins)
        deviations = []
        for value in np.unique(classes):
            group = codes[classes == value]
            deviations.append(np.percentile(np.abs(group - group.mean(0)), 100 * quantile, axis=0))
        scores[:, k] = 1 - np.mean(deviations, axis=0) / largest
    return np.average(scores.max(1), weights=largest)


@pytest.mark.parametrize(("bins", "quantile"), [(20, 0.99), (None, 1.0), (3, 0.5)])
def test_irs_is_the_reference(bins, quantile):
    codes, factors = draw(600, 4, (3, 30))
    expected = reference_irs(codes, factors, bins, quantile)
    assert irs(codes, factors, bins, quantile) == pytest.approx(expected, abs=1e-12)
    assert irs(np.hstack([codes, np.ones((600, 2))]), factors, bins, quantile) == pytest.approx(expected, abs=1e-12)


def test_irs_of_skewed_codes_is_the_reference():
    # each group has an outlier: deviations from its mean are 9, from the mean of all only 5
    codes = np.array([0.0] * 9 + [10.0] + [10.0] * 9 + [0.0])[:, None]
    factors = np.repeat([[0], [1]], 10, axis=0)
    assert reference_irs(codes, factors, quantile=1.0) == pytest.approx(-0.8)
    assert irs(codes, factors, quantile=1.0) == pytest.approx(-0.8)
    both = np.hstack([codes, np.random.default_rng(0).normal(size=(20, 1))])
    assert irs(both, factors) == pytest.approx(reference_irs(both, factors), abs=1e-12)


def test_irs_bins_the_factors_as_the_reference_does():
    codes, factors = draw(600, 3, (40,))
    assert irs(codes, factors) != irs(codes, factors, bins=None)
    assert irs(codes, factors, bins=40) == pytest.approx(irs(codes, factors, bins=None), abs=1e-12)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_downstream_accuracy_of_logistic_regression():
    data = split(*draw(120, noise=0.8), share=0.5)
    models = [LogisticRegressionCV(Cs=10, cv=KFold(5), scoring="accuracy").fit(data[0], factor) for factor in data[1].T]
    expected = [model.score(data[2], factor) for model, factor in zip(models, data[3].T, strict=True)]
    np.testing.assert_allclose(downstream_accuracy(*data, "lr", per_factor=True), expected)
    assert downstream_accuracy(*data, "lr") == pytest.approx(np.mean(expected))


def test_downstream_accuracy_of_trees():
    data = split(*draw(120, noise=0.8), share=0.5)
    models = [GradientBoostingClassifier(random_state=0).fit(data[0], factor) for factor in data[1].T]
    expected = [model.score(data[2], factor) for model, factor in zip(models, data[3].T, strict=True)]
    np.testing.assert_allclose(downstream_accuracy(*data, backend="sklearn", per_factor=True), expected)
    np.testing.assert_allclose(downstream_accuracy(*data, per_factor=True), expected, atol=0.05)
    assert downstream_accuracy(*data) == pytest.approx(dci(*data)["informativeness_test"])


def test_a_class_never_seen_is_never_predicted():
    codes, factors = draw(90, 2, (3,), noise=0.01)
    seen = factors[:, 0] < 2
    for classifier in ("lr", "gbt"):
        assert downstream_accuracy(codes[seen], factors[seen], codes[~seen], factors[~seen], classifier) == 0.0


# The unit-test anchors of the reference


def anchors(codes, factors):
    data = split(codes, factors)
    scores = dci(*data)
    return {
        "mig": mig(codes, factors),
        "modularity": modularity(codes, factors),
        "irs": irs(codes, factors),
        "sap": sap(*data, continuous_factors=True),
        "explicitness": explicitness(*data),
        "d": scores["disentanglement"],
        "c": scores["completeness"],
    }


def test_identity_is_at_least_nine_tenths():
    _, factors = draw(1500, sizes=TEN)
    assert min(anchors(factors * 1.0, factors).values()) >= 0.9


def test_constant_codes_are_worth_nothing():
    _, factors = draw(300, sizes=(3, 4))
    scores = anchors(np.full((300, 3), 0.1), factors)
    assert scores.pop("explicitness") == 0.5  # chance
    assert max(scores.values()) == 0.0


@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_duplicated_codes(noise):
    rng = np.random.default_rng(1)
    factors = rng.integers(0, (2, 3, 2, 3, 2), size=(600, 5))
    codes = np.hstack([factors, factors]) + noise * rng.normal(size=(600, 10))
    scores = anchors(codes, factors)
    assert scores["mig"] <= 0.1
    assert scores["sap"] <= 0.1
    assert scores["d"] >= 0.9
    assert scores["modularity"] >= 0.9
    assert scores["c"] == pytest.approx(1 - np.log(2) / np.log(10), abs=0.1)


def test_one_code_for_two_of_ten_factors():
    _, factors = draw(1200, sizes=(3,) * 10)
    codes = factors[:, 0::2] * 3.0 + factors[:, 1::2]  # five codes, each knows two factors
    scores = dci(*split(codes, factors))
    assert scores["disentanglement"] == pytest.approx(1 - np.log(2) / np.log(10), abs=0.02)
    assert scores["completeness"] >= 0.9


def test_modularity_with_an_empty_code_is_two_thirds():
    _, factors = draw(10_000, sizes=(4, 4))
    codes = np.hstack([factors, np.zeros((10_000, 1))])
    assert modularity(codes, factors) == pytest.approx(2 / 3, abs=1e-4)


def test_the_measured_anchors():
    """On a grid of 3×4×6×8 where a code is a function of the grid point, noise too, as the reference measured them."""
    rng = np.random.default_rng(0)
    _, factors = draw(3000, sizes=(3, 4, 6, 8))
    index = np.ravel_multi_index(tuple(factors.T), (3, 4, 6, 8))
    perfect = np.hstack([factors - factors.mean(0), 0.01 * rng.normal(size=(576, 2))[index]])
    noise = rng.normal(size=(576, 6))[index]
    small = slice(0, 2000)  # their sample: with 576 points mutual information still depends on it
    assert mig(perfect[small], factors[small]) == pytest.approx(0.940, abs=0.01)
    assert modularity(perfect[small], factors[small]) == pytest.approx(0.914, abs=0.05)
    assert irs(perfect[small], factors[small]) == pytest.approx(0.986, abs=0.01)
    assert sap(*split(perfect, factors)) == pytest.approx(0.415, abs=0.03)
    assert explicitness(*split(perfect, factors)) == pytest.approx(1, abs=0.01)
    assert mig(noise[small], factors[small]) == pytest.approx(0.006, abs=0.01)
    assert modularity(noise[small], factors[small]) == pytest.approx(0.623, abs=0.1)
    assert irs(noise[small], factors[small]) == pytest.approx(0.299, abs=0.12)  # 0.19 to 0.32 over 25 draws
    assert sap(*split(noise, factors)) == pytest.approx(0.012, abs=0.02)
    assert explicitness(*split(noise, factors)) == pytest.approx(0.575, abs=0.03)


# Invariants

CHEAP = {
    "modularity": modularity,
    "irs": irs,
    "mig": mig,
    "continuous sap": lambda codes, factors: sap(*split(codes, factors), continuous_factors=True),
    "explicitness": lambda codes, factors: explicitness(*split(codes, factors)),
}


@pytest.mark.parametrize("score", CHEAP.values(), ids=CHEAP)
@settings(max_examples=15, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1), d=st.integers(2, 5), sizes=st.lists(st.integers(2, 6), min_size=1, max_size=3))
def test_scores_ignore_order_and_scale(score, seed, d, sizes):
    codes, factors = draw(90, d, tuple(sizes), seed)
    rng = np.random.default_rng(seed)
    expected = score(codes, factors)
    assert 0 <= expected <= 1
    assert score(codes[:, rng.permutation(d)], factors) == pytest.approx(expected, abs=1e-5)
    assert score(codes, factors[:, rng.permutation(len(sizes))]) == pytest.approx(expected, abs=1e-5)
    if score is not irs:  # its weights compare the ranges of codes
        scales = 2.0 ** rng.integers(-3, 4, d)
        assert score(codes * scales, factors) == pytest.approx(expected, abs=1e-5)
    assert score(codes * 4, factors) == pytest.approx(expected, abs=1e-5)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1))
def test_scores_ignore_the_order_of_rows_and_the_names_of_classes(seed):
    codes, factors = draw(120, 3, (4, 3), seed)
    rng = np.random.default_rng(seed)
    rows, names = rng.permutation(120), rng.choice(1000, 4, replace=False) - 500
    for score in (modularity, mig):
        assert score(codes[rows], names[factors][rows]) == pytest.approx(score(codes, factors), abs=1e-9)
    unbinned = irs(codes, factors, bins=None)
    assert irs(codes[rows], names[factors][rows], bins=None) == pytest.approx(unbinned, abs=1e-9)
    data = split(codes, factors)
    renamed = data[0], names[data[1]], data[2], names[data[3]]
    assert explicitness(*renamed) == pytest.approx(explicitness(*data), abs=1e-4)


def test_dci_ignores_order_scale_and_names():
    codes, factors = draw(150, 3, (3, 2))
    names = np.array([40, -2, 7])
    expected = dci(*split(codes, factors))
    other = dci(*split(codes[:, [2, 0, 1]] * [3, 5e3, 7e-3], names[factors][:, ::-1]))
    for name in ("disentanglement", "completeness", "informativeness_train", "informativeness_test"):
        assert other[name] == pytest.approx(expected[name], abs=0.021)  # of equally good codes a lot takes one
    np.testing.assert_allclose(other["importance"], expected["importance"][[2, 0, 1]][:, ::-1], atol=0.01)


@pytest.mark.parametrize("extra", ["factor", "class"])
def test_constant_factors_are_left_out_of_every_mean(extra):
    codes, factors = draw(150, 3, (3, 2))
    more = np.hstack([factors, np.full((150, 1), 3)])
    if extra == "class":  # constant in training, not in the test: nothing could have been learnt
        more[100:, 2] = 5
    for score in (sap, explicitness):
        assert score(*split(codes, more)) == score(*split(codes, factors))
    ours, expected = dci(*split(codes, more)), dci(*split(codes, factors))
    assert ours["disentanglement"] == pytest.approx(expected["disentanglement"], abs=1e-6)
    assert ours["informativeness_test"] == expected["informativeness_test"]
    np.testing.assert_array_equal(ours["importance"][:, 2], 0)


def test_matrices_say_what_a_perfect_entry_would_be():
    _, factors = draw(200, sizes=(3, 4))
    codes = factors * 1.0
    for matrix in (information_matrix(codes, factors), importance_matrix(codes, factors)):
        assert matrix.values.shape == (2, 2)
        np.testing.assert_allclose(np.diag(matrix.values), matrix.ceiling, atol=1e-6)
    data = split(codes, factors)
    assert predictability_matrix(*data).ceiling.tolist() == [1, 1]
