"""Labels as people have them: every metric gives what the same labels give once they are cleaned by hand."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch

from unknot.metrics import functional as f

RNG = np.random.default_rng(0)
N = 240
FACTORS = np.stack([RNG.integers(0, 3, N), RNG.integers(0, 4, N)], axis=1)
CODES = np.hstack([FACTORS + 0.3 * RNG.normal(size=(N, 2)), RNG.normal(size=(N, 1))])
HALF = slice(0, 160), slice(160, N)


def split(function, **options):
    def score(codes, factors):
        parts = [factors.iloc[half] if hasattr(factors, "iloc") else factors[half] for half in HALF]
        return function(codes[HALF[0]], parts[0], codes[HALF[1]], parts[1], **options)

    return score


PER_FACTOR = {
    "mig": f.mig,
    "modularity": f.modularity,
    "irs": f.irs,
    "dci": split(f.dci),
    "sap": split(f.sap),
    "explicitness": split(f.explicitness),
    "downstream_gbt": split(f.downstream_accuracy, classifier="gbt"),
    "downstream_lr": split(f.downstream_accuracy, classifier="lr"),
}
COMPLETE = {
    "infomec": f.infomec,
    "mcc": f.mcc,
    "med": f.med,
    "dcimig": f.dcimig,
    "linear_r2": split(f.regression_r2),
}
METRICS = PER_FACTOR | COMPLETE
WORDS = np.array(["ant", "bee", "cat", "dog"])


def tuples(score):
    score = score if isinstance(score, dict) else {"score": score}
    return {name: value for name, value in score.items() if np.ndim(value) == 0}


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize(
    "labels",
    [
        pytest.param(FACTORS.astype(np.float32), id="float"),
        pytest.param(torch.from_numpy(FACTORS).double(), id="torch float"),
        pytest.param(FACTORS.astype(np.uint8), id="uint8"),
        pytest.param(WORDS[FACTORS], id="str"),
        pytest.param(WORDS[FACTORS].astype(object), id="object"),
        pytest.param(FACTORS.astype(str), id="numbers as text"),
        pytest.param(pd.DataFrame(FACTORS, columns=["a", "b"]), id="pandas"),
        pytest.param(
            pd.DataFrame({"a": pd.Categorical(WORDS[FACTORS[:, 0]], WORDS), "b": FACTORS[:, 1] * 1.0}), id="categorical"
        ),
    ],
)
def test_labels_of_any_type_score_as_classes_do(name, labels) -> None:
    assert tuples(METRICS[name](CODES, labels)) == tuples(METRICS[name](CODES, FACTORS))


def test_truth_values_are_classes() -> None:
    for name, score in METRICS.items():
        assert tuples(score(CODES, FACTORS > 1)) == tuples(score(CODES, (FACTORS > 1) * 1)), name


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("missing", ["-1", "nan", "None", "-1.0"])
def test_rows_without_labels_do_not_count(name, missing) -> None:
    """Every third row has no label at all: the same as leaving these rows out."""
    value = {"-1": -1, "nan": np.nan, "None": None, "-1.0": -1.0}[missing]
    kept = np.arange(N) % 3 > 0
    labels = FACTORS.astype(object) if value is None else FACTORS.astype(type(value))
    labels[~kept] = value
    halves = [np.flatnonzero(kept[half]) + half.start for half in HALF]
    function = METRICS[name]
    if function in (f.mig, f.modularity, f.irs, *COMPLETE.values()) and name != "linear_r2":
        cleaned = function(CODES[kept], FACTORS[kept])
    else:
        padded = np.concatenate(halves)  # `split` cuts at 160: repeat the function on the cleaned halves instead
        assert len(padded) == kept.sum()
        cleaned = SPLIT[name](CODES[halves[0]], FACTORS[halves[0]], CODES[halves[1]], FACTORS[halves[1]])
    assert tuples(function(CODES, labels)) == tuples(cleaned)


SPLIT = {
    "dci": f.dci,
    "sap": f.sap,
    "explicitness": f.explicitness,
    "downstream_gbt": lambda *rows: f.downstream_accuracy(*rows, classifier="gbt"),
    "downstream_lr": lambda *rows: f.downstream_accuracy(*rows, classifier="lr"),
    "linear_r2": f.regression_r2,
}


def test_each_factor_counts_the_rows_that_are_labelled_for_it() -> None:
    """Scores that are means over factors: the mean of each factor's own score over its own rows."""
    labels = FACTORS.copy()
    known = [np.arange(N) % 4 > 0, np.arange(N) % 5 > 1]
    for column, rows in enumerate(known):
        labels[~rows, column] = -1
    alone = [np.flatnonzero(rows) for rows in known]
    assert f.mig(CODES, labels) == pytest.approx(
        np.mean([f.mig(CODES[rows], FACTORS[rows][:, [c]]) for c, rows in enumerate(alone)]), abs=1e-12
    )
    for name in ("sap", "explicitness", "downstream_gbt", "downstream_lr"):
        each = []
        for c, rows in enumerate(alone):
            a, b = rows[rows < 160], rows[rows >= 160]
            each.append(SPLIT[name](CODES[a], FACTORS[a][:, [c]], CODES[b], FACTORS[b][:, [c]]))
        assert METRICS[name](CODES, labels) == pytest.approx(np.mean(each), abs=1e-12), name
    scores, columns = METRICS["dci"](CODES, labels), []
    for c, rows in enumerate(alone):
        a, b = rows[rows < 160], rows[rows >= 160]
        columns.append(f.dci(CODES[a], FACTORS[a][:, [c]], CODES[b], FACTORS[b][:, [c]]))
    importance = np.hstack([column["importance"] for column in columns])
    np.testing.assert_allclose(scores["importance"], importance, atol=1e-12)
    assert scores["informativeness_test"] == pytest.approx(np.mean([c["informativeness_test"] for c in columns]))
    both = known[0] & known[1]
    assert tuples(f.infomec(CODES, labels)) == tuples(f.infomec(CODES[both], FACTORS[both]))


def test_a_factor_without_any_label_is_left_out() -> None:
    labels = FACTORS.copy()
    labels[:, 1] = -1
    for name, score in PER_FACTOR.items():
        assert tuples(score(CODES, labels)) == pytest.approx(tuples(score(CODES, FACTORS[:, :1]))), name
    with pytest.raises(ValueError, match="No row is labelled for all factors"):
        f.infomec(CODES, labels)


@pytest.mark.parametrize("name", METRICS)
def test_continuous_factors_are_cut_into_20_bins_or_used_as_numbers(name) -> None:
    continuous = FACTORS + RNG.uniform(0, 0.9, (N, 2))
    score = tuples(METRICS[name](CODES, continuous))
    if name in ("mcc", "linear_r2"):
        assert all(np.isfinite(value) for value in score.values())
        assert score != tuples(METRICS[name](CODES, f.discretize(continuous)))
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert score == tuples(METRICS[name](CODES, f.discretize(continuous)))


def test_sap_of_continuous_factors_uses_their_numbers() -> None:
    continuous = FACTORS + RNG.uniform(0, 0.9, (N, 2))
    correlations = np.corrcoef(CODES[HALF[0]].T, continuous[HALF[0]].T)[:3, 3:] ** 2
    ranked = np.sort(correlations, axis=0)
    rows = CODES[HALF[0]], continuous[HALF[0]], CODES[HALF[1]], continuous[HALF[1]]
    assert f.sap(*rows, continuous_factors=True) == pytest.approx((ranked[-1] - ranked[-2]).mean())


def test_values_of_minus_one_and_one_are_warned_about() -> None:
    with pytest.warns(UserWarning, match="Use 0 and 1"):
        f.mig(CODES, np.where(FACTORS > 1, 1, -1))


def test_unfairness_leaves_out_what_is_not_known() -> None:
    predictions, sensitive = [1, 1, 0, 0, 1, 1, 1], [0, 0, 1, 1, 1, 1, np.nan]
    assert f.unfairness(predictions, sensitive) == f.unfairness(predictions[:6], sensitive[:6])
