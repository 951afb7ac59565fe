"""One table for every function: odd inputs have a defined value, unusable ones a one-line error."""

import warnings

import numpy as np
import pytest
import torch

from unknot.metrics import functional as f


def of_rows(function):
    return lambda codes, factors: function(codes, factors)


def of_split(function, *options):
    """Learn and test on the same rows: whatever is odd about them is odd on both sides."""
    return lambda codes, factors: function(codes, factors, codes, factors, *options)


def dci(codes, factors):
    scores = f.dci(codes, factors, codes, factors)
    assert scores.pop("importance").shape == (len(codes[0]), len(factors[0]))
    return scores


SUPERVISED = {
    "mig": of_rows(f.mig),
    "modularity": of_rows(f.modularity),
    "irs": of_rows(f.irs),
    "information_matrix": of_rows(lambda *rows: f.information_matrix(*rows).values),
    "sap": of_split(f.sap),
    "sap_continuous": of_split(f.sap, True),
    "explicitness": of_split(f.explicitness),
    "predictability_matrix": of_split(lambda *rows: f.predictability_matrix(*rows).values),
    "dci": dci,
    "downstream_lr": of_split(f.downstream_accuracy, "lr"),
    "infomec": of_rows(f.infomec),
    "infomec_discrete": of_rows(lambda codes, factors: f.infomec(codes, factors, discrete_codes=True)),
    "dcimig": of_rows(f.dcimig),
    "jemmig": of_rows(f.jemmig),
    "mig_sup": of_rows(f.mig_sup),
    "med": of_rows(f.med),
    "mig_by_code": of_rows(lambda codes, factors: f.mig(codes, factors, divide_by="code")),
}
TREES = {
    "importance_matrix": of_rows(lambda *rows: f.importance_matrix(*rows).values),
    "downstream_gbt": of_split(f.downstream_accuracy, "gbt"),
}
UNSUPERVISED = {
    "total_correlation": lambda codes, _: f.total_correlation(codes),
    "wasserstein_dependence": lambda codes, _: f.wasserstein_dependence(codes),
    "pairwise_information": lambda codes, _: f.pairwise_information(codes),
    "udr": lambda codes, _: f.udr([codes, codes]),
}

RNG = np.random.default_rng(0)
FACTORS = np.stack([np.arange(24) % 3, np.arange(24) // 12], axis=1)
CODES = FACTORS @ RNG.normal(size=(2, 3)) + 0.3 * RNG.normal(size=(24, 3))
ONCE = FACTORS.copy()
ONCE[5] = 9
HALF = CODES.copy()
HALF[:, 1] = 0.1

ODD = {
    "constant codes": (np.full((24, 3), 0.1), FACTORS),
    "one constant code": (HALF, FACTORS),
    "constant factors": (CODES, np.full((24, 2), 4)),
    "one constant factor": (CODES, FACTORS * [1, 0]),
    "a class with one sample": (CODES, ONCE),
    "more classes than samples": (CODES, np.stack([np.arange(24), 3 * np.arange(24)], axis=1)),
    "one code": (CODES[:, :1], FACTORS),
    "one factor": (CODES, FACTORS[:, :1]),
    "one code and one factor": (CODES[:, :1], FACTORS[:, :1]),
    "two rows": (CODES[[0, 13]], FACTORS[[0, 13]]),
    "one row": (CODES[:1], FACTORS[:1]),
    "more codes than rows": (CODES[::9].repeat(4, axis=1), FACTORS[::9]),
}
EXPECTED = {
    ("constant codes", "mig"): 0,
    ("constant codes", "modularity"): 0,
    ("constant codes", "irs"): 0,
    ("constant codes", "sap"): 0,
    ("constant codes", "sap_continuous"): 0,
    ("constant codes", "explicitness"): 0.5,
    ("constant codes", "infomec"): {"infom": 0, "infoe": 0, "infoc": 0},
    ("constant codes", "infomec_discrete"): {"infom": 0, "infoe": 0, "infoc": 0},
    ("constant codes", "dcimig"): 0,
    ("constant codes", "mig_sup"): 0,
    ("constant codes", "med"): {"disentanglement": 0, "completeness": 0},
    ("constant codes", "dci"): {"disentanglement": 0, "completeness": 0},
    ("constant codes", "udr"): 0,
    ("constant codes", "total_correlation"): 0,
    ("constant factors", "mig"): 0,
    ("constant factors", "modularity"): 0,
    ("constant factors", "irs"): 0,
    ("constant factors", "sap"): 0,
    ("constant factors", "infomec"): {"infom": 0, "infoe": 0, "infoc": 0},
    ("constant factors", "jemmig"): 0,
    ("constant factors", "explicitness"): 0.5,
    ("constant factors", "dci"): {"disentanglement": 0, "completeness": 0, "informativeness_test": 0},
    ("constant factors", "downstream_lr"): 1,
    ("one code", "total_correlation"): 0,
    ("one code", "pairwise_information"): 0,
    ("one code", "dci"): {"completeness": 1},
    ("one factor", "dci"): {"disentanglement": 1},
    ("one row", "mig"): 0,
    ("one row", "irs"): 0,
    ("one row", "explicitness"): 0.5,
}


@pytest.mark.parametrize("case", ODD)
def test_odd_inputs_have_a_defined_value(case):
    codes, factors = ODD[case]
    for name, function in {**SUPERVISED, **UNSUPERVISED}.items():
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)  # scikit-learn itself remarks on many classes
            score = function(codes, factors)
        values = np.array(list(score.values()) if isinstance(score, dict) else score, dtype=float)
        bounded = (name in SUPERVISED and name != "information_matrix") or name == "udr"
        assert not np.isnan(values).any(), name
        assert (values >= 0).all(), name
        assert not bounded or (values <= 1).all(), name
        expected = EXPECTED.get((case, name))
        if isinstance(expected, dict):
            assert {key: score[key] for key in expected} == pytest.approx(expected), name
        elif expected is not None:
            assert values == pytest.approx(expected), name


NAN, INF = CODES.copy(), CODES.copy()
NAN[2, 1], INF[0, 0] = np.nan, -np.inf
UNUSABLE = {
    "NaN codes": (NAN, FACTORS, "codes must be finite: 1 of 24 rows"),
    "infinite codes": (INF, FACTORS, "codes must be finite: 1 of 24 rows"),
    "complex codes": (CODES * 1j, FACTORS, "codes must be real numbers, got complex128"),
    "flat codes": (CODES[:, 0], FACTORS, r"codes must have shape \[N, D\]"),
    "no codes": (CODES[:, :0], FACTORS, r"codes must have shape \[N, D\]"),
    "no rows": (CODES[:0], FACTORS[:0], r"codes must have shape \[N, D\]"),
}
UNUSABLE_FACTORS = {
    "infinite factors": (CODES, FACTORS + np.inf, "must be finite, or NaN where they are missing; got infinity"),
    "complex factors": (CODES, torch.from_numpy(FACTORS).cfloat(), "must be numbers, booleans or strings"),
    "no label at all": (CODES, np.full_like(FACTORS, -1), "factors hold no label"),
    "flat factors": (CODES, FACTORS[:, 0], r"factors must have shape \[N, F\]"),
    "no factors": (CODES, FACTORS[:, :0], r"factors must have shape \[N, F\]"),
    "lengths that differ": (CODES, FACTORS[:20], "as many rows, got 24 and 20"),
}


@pytest.mark.parametrize("case", [*UNUSABLE, *UNUSABLE_FACTORS])
def test_unusable_inputs_are_told_what_was_expected(case):
    functions = {**SUPERVISED, **TREES}
    if case in UNUSABLE:
        functions |= UNSUPERVISED
    codes, factors, message = {**UNUSABLE, **UNUSABLE_FACTORS}[case]
    for name, function in functions.items():
        with pytest.raises(ValueError, match=message) as error:
            function(codes, factors)
        assert "\n" not in str(error.value), name


@pytest.mark.parametrize(
    "function", [f.dci, f.sap, f.explicitness, f.predictability_matrix, f.downstream_accuracy], ids=lambda g: g.__name__
)
def test_train_and_test_must_be_as_wide(function):
    with pytest.raises(ValueError, match="codes to train and to test on must be as wide, got 3 and 2 columns"):
        function(CODES, FACTORS, CODES[:, :2], FACTORS)
    with pytest.raises(ValueError, match="factors to train and to test on must be as wide, got 2 and 1 columns"):
        function(CODES, FACTORS, CODES, FACTORS[:, :1])
    with pytest.raises(ValueError, match="as many rows, got 24 and 9"):
        function(CODES, FACTORS, CODES, FACTORS[:9])
    with pytest.raises(ValueError, match="codes must be finite"):
        function(CODES, FACTORS, NAN, FACTORS)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: f.beta_vae_score(CODES, FACTORS[:, 0], CODES[:, :2], FACTORS[:, 0]), "as wide in training and test"),
        (lambda: f.beta_vae_score(CODES, FACTORS[:9, 0], CODES, FACTORS[:, 0]), "an entry for each of 24 rows, got 9"),
        (lambda: f.beta_vae_score(CODES, FACTORS, CODES, FACTORS), r"labels must have shape \[N\]"),
        (
            lambda: f.beta_vae_score(CODES, CODES[:, 0], CODES, CODES[:, 0]),
            "labels must be classes, got fractions",
        ),
        (lambda: f.beta_vae_score(NAN, FACTORS[:, 0], CODES, FACTORS[:, 0]), "must be finite"),
        (lambda: f.factor_vae_score([0, 1], [0], [0], [0], 2), "an entry for each of 2 rows, got 1"),
        (lambda: f.factor_vae_score([0.5], [0], [0], [0], 2), "argmin must be classes, got fractions of float64"),
        (lambda: f.factor_vae_score([], [], [0], [0], 2), r"argmin must have shape \[N\] with N >= 1"),
        (lambda: f.irs(CODES, FACTORS, quantile=1.5), r"quantile must lie in \[0, 1\], got 1.5"),
        (lambda: f.irs(CODES, FACTORS, bins=0), "bins must be a whole number of at least 1, got 0"),
        (lambda: f.modularity(CODES, FACTORS, bins=0), "bins must be a whole number of at least 1, got 0"),
        (lambda: f.pairwise_information(CODES, bins=-1), "bins must be a whole number of at least 1, got -1"),
        (
            lambda: f.dci(CODES, FACTORS, CODES, FACTORS, backend="xgboost"),
            "backend must be 'unknot', 'sklearn' or 'hist'",
        ),
        (lambda: f.downstream_accuracy(CODES, FACTORS, CODES, FACTORS, "svm"), "classifier must be 'lr' or 'gbt'"),
    ],
)
def test_options_and_labels_are_checked(call, message):
    with pytest.raises(ValueError, match=message) as error:
        call()
    assert "\n" not in str(error.value)
