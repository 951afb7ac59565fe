"""Matrix completion as an estimator."""

import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import scipy.io
import scipy.sparse
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder
from sklearn.utils.estimator_checks import check_estimator
from solver_experiments import Ratings, load_movielens, random_completion, run_completion, synthetic_ratings

from unknot.solvers import MatrixCompletion

SHCGM: dict[str, Any] = {"method": "shcgm"}
SHARED_DATA = Path(__file__).parents[2].parent / "shared" / "data"


def problem() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    target, seen, _ = random_completion(40, 30)
    return np.argwhere(seen), target[seen], target


def test_fit_predict_score() -> None:
    pairs, ratings, target = problem()
    model = MatrixCompletion(**SHCGM, radius=160.0, max_iter=1500, batch_size=100, random_state=0).fit(pairs, ratings)
    assert model.score(pairs, ratings) > 0.5
    assert model.rmse(pairs, ratings) < 0.8
    everywhere = np.argwhere(np.ones(target.shape))
    predictions = model.predict(everywhere)
    assert predictions.shape == (1200,)
    assert predictions.min() >= 1
    assert predictions.max() <= 5
    assert model.matrix_.shape == target.shape
    assert model.n_iter_ == 1500
    assert model.feasibility_ == pytest.approx(model.result_.feasibility, rel=1e-3)
    raw = model.entries(everywhere)
    assert np.abs(predictions - np.clip(raw, 1, 5)).max() == 0
    assert np.linalg.norm(raw - np.clip(raw, 1, 5)) == pytest.approx(model.feasibility_, rel=1e-3, abs=1e-6)
    again = clone(model).fit(pairs, ratings)
    np.testing.assert_array_equal(again.matrix_, model.matrix_)


def test_without_a_box_it_is_stochastic_frank_wolfe() -> None:
    pairs, ratings, _ = problem()
    model = MatrixCompletion(**SHCGM, radius=160.0, box=None, max_iter=300, batch_size=100, random_state=0).fit(
        pairs, ratings
    )
    assert model.feasibility_ == 0
    assert np.isfinite(model.predict(pairs)).all()
    one_sided = MatrixCompletion(**SHCGM, radius=160.0, box=(1, None), max_iter=300, random_state=0).fit(pairs, ratings)
    assert one_sided.predict(pairs).min() >= 1


def test_default_radius_is_the_thesis_choice_for_movielens() -> None:
    model = MatrixCompletion(method="shcgm")
    ratings = np.array([3.0, 4.0, 4.0, 5.0, 2.0])
    assert model._radius(ratings, (1675, 943)) == pytest.approx(7000, rel=0.05)
    assert model._radius(np.zeros(3), (4, 4)) > 0


def test_names_in_a_pipeline_and_a_grid_search() -> None:
    pairs, ratings, _ = problem()
    names = np.array([[f"movie {i}", f"user {j}"] for i, j in pairs])
    encoder = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=10**6)
    pipeline = make_pipeline(
        encoder, MatrixCompletion(**SHCGM, radius=160.0, max_iter=300, batch_size=100, random_state=0)
    )
    pipeline.fit(names, ratings)
    assert pipeline.predict(names).shape == ratings.shape
    with pytest.warns(UserWarning, match="1 of 1 pairs are in a row or column without any rating"):
        assert pipeline.predict([["movie 0", "a stranger"]])[0] == pytest.approx(ratings.mean())
    search = GridSearchCV(pipeline, {"matrixcompletion__radius": [100.0, 160.0]}, cv=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search.fit(names, ratings)
    assert search.best_params_["matrixcompletion__radius"] in (100.0, 160.0)


def test_scikit_learn_checks_that_do_not_feed_it_features() -> None:
    """Samples are pairs of indices, so checks that fit it to real features do not apply; the others hold."""
    declared = MatrixCompletion.expected_failed_checks
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(MatrixCompletion(**SHCGM, max_iter=5), expected_failed_checks=declared, on_skip=None)
    assert {result["check_name"] for result in results if result["status"] == "xfail"} == set(declared)
    passed = {result["check_name"] for result in results if result["status"] == "passed"}
    assert passed >= {
        "check_do_not_raise_errors_in_init_or_set_params",
        "check_estimator_cloneable",
        "check_estimator_repr",
        "check_estimators_unfitted",
        "check_estimators_empty_data_messages",
        "check_fit1d",
        "check_get_params_invariance",
        "check_mixin_order",
        "check_no_attributes_set_in_init",
        "check_parameters_default_constructible",
        "check_set_params",
        "check_supervised_y_no_nan",
        "check_valid_tag_types",
    }


@pytest.mark.parametrize("method", ["frank-wolfe", "shcgm"])
def test_sparse_ratings_and_frames(method: str) -> None:
    """A sparse matrix or a DataFrame of ratings is fitted as its pairs are."""
    pairs, ratings, target = problem()
    options: dict[str, Any] = {"method": method, "max_iter": 20, "random_state": 0}
    matrix = scipy.sparse.coo_array((ratings, tuple(pairs.T)), shape=(41, 30))
    with pytest.warns(UserWarning, match="1 of 41 rows have no rating"):
        sparse = MatrixCompletion(**options).fit(matrix)
    given = MatrixCompletion(**options).fit(pairs, ratings)
    np.testing.assert_allclose(sparse.matrix_, given.matrix_, rtol=1e-5)
    rows = matrix.tocsr()
    np.testing.assert_allclose(sparse.predict(rows), given.predict(np.argwhere(target * (rows.toarray()[:40] != 0))))
    assert sparse.score(rows) == pytest.approx(given.score(pairs, ratings))
    assert sparse.rmse(rows) == pytest.approx(given.rmse(pairs, ratings))
    frame = pandas.DataFrame({"row": pairs[:, 0], "column": pairs[:, 1], "rating": ratings})
    framed = MatrixCompletion(**options).fit(frame[["row", "column"]], frame["rating"])
    np.testing.assert_array_equal(framed.matrix_, given.matrix_)
    with pytest.raises(ValueError, match="expected no y besides"):
        MatrixCompletion().fit(matrix, ratings)


def test_pickle_and_input_left_alone() -> None:
    pairs, ratings, _ = problem()
    copies = pairs.copy(), ratings.copy()
    model = MatrixCompletion(**SHCGM, radius=160.0, max_iter=20, random_state=0).fit(pairs, ratings)
    np.testing.assert_array_equal(pairs, copies[0])
    np.testing.assert_array_equal(ratings, copies[1])
    restored = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(restored.predict(pairs), model.predict(pairs))


def test_empty_rows_and_columns_warn() -> None:
    pairs = np.array([[0, 0], [0, 3], [4, 3]])
    with pytest.warns(UserWarning, match="have no rating") as caught:
        model = MatrixCompletion(**SHCGM, max_iter=50, random_state=0).fit(pairs, [1.0, 2.0, 3.0])
    messages = [str(entry.message) for entry in caught]
    assert any("3 of 5 rows have no rating" in message for message in messages)
    assert any("2 of 4 columns have no rating" in message for message in messages)
    with pytest.warns(UserWarning, match="prediction is the mean rating, 2"):
        assert model.predict([[2, 2]])[0] == pytest.approx(2.0)


PAIRS, VALUES = np.array([[0, 0], [1, 1]]), np.array([1.0, 5.0])
BAD: list[tuple[str, Callable[[], Any], str]] = [
    (
        "ratings outside the box",
        lambda: MatrixCompletion().fit(PAIRS, [0.0, 7.0]),
        r"2 of 2 ratings are outside the box \[1, 5\] \(they go from 0 to 7\).*pass box=\(0, 7\)",
    ),
    ("missing rating", lambda: MatrixCompletion().fit(PAIRS, [1.0, np.nan]), "ratings that are not finite"),
    ("triples", lambda: MatrixCompletion().fit(np.zeros((3, 3)), np.ones(3)), "n_features = 3: expected pairs"),
    ("fractions", lambda: MatrixCompletion().fit(PAIRS + 0.5, VALUES), "no whole numbers"),
    ("names", lambda: MatrixCompletion().fit([["a", "b"]], [1.0]), "put OrdinalEncoder before"),
    ("negative", lambda: MatrixCompletion().fit(PAIRS - 1, VALUES), "X has the index -1, expected indices from 0"),
    ("lengths", lambda: MatrixCompletion().fit(PAIRS, [1.0]), "2 pairs and 1 ratings"),
    ("nothing", lambda: MatrixCompletion().fit(np.zeros((0, 2)), []), "0 pairs and 0 ratings"),
    ("no ratings", lambda: MatrixCompletion().fit(PAIRS, None), "requires y to be passed"),
    ("index missing", lambda: MatrixCompletion().fit([[0.0, np.nan]], [1.0]), "NaN"),
    (
        "shape",
        lambda: MatrixCompletion(shape=(1, 1)).fit(PAIRS, VALUES),
        r"pair \(1, 1\) but shape is \(1, 1\)",
    ),
    ("twice", lambda: MatrixCompletion().fit(PAIRS * 0, VALUES), r"entry \(0, 0\) is given more than once"),
    ("dtype", lambda: MatrixCompletion(dtype="half").fit(PAIRS, VALUES), "dtype is 'half': expected"),
    ("empty box", lambda: MatrixCompletion(box=(5, 1)).fit(PAIRS, VALUES), "outside the box|is empty"),
    (
        "oracle",
        lambda: MatrixCompletion(oracle="magic").fit(PAIRS, VALUES),
        "method 'magic' is unknown",
    ),
]


@pytest.mark.parametrize(("make", "message"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_bad_input(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_files_of_movielens(tmp_path: Path) -> None:
    (tmp_path / "u.data").write_text("1\t5\t3\t881250949\n2\t1\t4\t891717742\n")
    (tmp_path / "ratings.dat").write_text("1::5::3::978300760\n2::1::4::978302109\n")
    stored = {"UserID": [[1], [2]], "MovID": [[5], [1]], "Rating": [[3], [4]]}
    scipy.io.savemat(tmp_path / "ratings.mat", {name: np.array(value, np.uint16) for name, value in stored.items()})
    for name in ("u.data", "ratings.dat", "ratings.mat"):
        pairs, ratings = load_movielens(tmp_path / name)
        assert pairs.tolist() == [[4, 0], [0, 1]]
        assert ratings.tolist() == [3.0, 4.0]
    with pytest.raises(FileNotFoundError, match="expected ratings of MovieLens"):
        load_movielens(tmp_path / "nothing")
    (tmp_path / "words").write_text("a\tb\tc\n")
    with pytest.raises(ValueError, match="no table of user, movie and rating"):
        load_movielens(tmp_path / "words")
    scipy.io.savemat(tmp_path / "other.mat", {"x": np.eye(2)})
    with pytest.raises(ValueError, match="has no MovID, Rating, UserID"):
        load_movielens(tmp_path / "other.mat")


@pytest.mark.parametrize("method", ["SHCGM", "SFW", "S3CCM"])
def test_recorded_runs(method: str) -> None:
    ratings = synthetic_ratings(30, 20)
    result, history = run_completion(
        method, ratings, radius=80.0, batch_size=50, max_iterations=40, evaluate_every=10, gamma=0.01
    )
    assert history.shape == (5, 3)
    pairs, values = ratings.train
    assert history[-1, 0] == pytest.approx(np.sqrt(np.mean((result.x[tuple(pairs.T)] - values) ** 2)), rel=1e-4)
    pairs, values = ratings.test
    assert history[-1, 1] == pytest.approx(np.sqrt(np.mean((result.x[tuple(pairs.T)] - values) ** 2)), rel=1e-4)
    assert history[-1, 2] == pytest.approx(np.linalg.norm(result.x - np.clip(result.x, 1, 5)), rel=1e-3, abs=1e-4)


@pytest.mark.skipif(not (SHARED_DATA / "movielens100k").exists(), reason="needs MovieLens 100k, which is not ours")
def test_movielens_has_the_size_it_should() -> None:
    folder = SHARED_DATA / "movielens100k"
    ratings = Ratings(load_movielens(folder / "ub.base"), load_movielens(folder / "ub.test"))
    assert ratings.shape == (1675, 943)
    assert (len(ratings.train[1]), len(ratings.test[1])) == (90570, 9423)


@pytest.mark.slow
@pytest.mark.skipif(not (SHARED_DATA / "movielens100k").exists(), reason="needs MovieLens 100k, which is not ours")
def test_movielens_table_of_the_thesis() -> None:
    folder = SHARED_DATA / "movielens100k"
    ratings = Ratings(load_movielens(folder / "ub.base"), load_movielens(folder / "ub.test"))
    _, history = run_completion("SHCGM", ratings, radius=7000.0, batch_size=1000)
    assert history[-1, 0] == pytest.approx(0.5574, abs=0.0498)
    assert history[-1, 1] == pytest.approx(1.1446, abs=0.0087)


def test_default_beats_the_biases_it_starts_from() -> None:
    rng = np.random.default_rng(0)
    truth = (
        3
        + rng.normal(size=(60, 1)) * 0.5
        + rng.normal(size=40) * 0.5
        + rng.normal(size=(60, 2)) @ rng.normal(size=(2, 40))
    )
    truth = np.clip(truth, 1, 5)
    pairs = rng.permutation(np.argwhere(np.ones(truth.shape)))
    train, test = pairs[:1400], pairs[1400:]
    model = MatrixCompletion(random_state=0).fit(train, truth[tuple(train.T)])
    biases = MatrixCompletion(radius=1e-9, random_state=0).fit(train, truth[tuple(train.T)])
    assert model.rmse(test, truth[tuple(test.T)]) < 0.8 * biases.rmse(test, truth[tuple(test.T)])
    assert np.linalg.norm(np.asarray(model.result_.x), "nuc") <= model.radius_ * (1 + 1e-4)
    assert model.result_.gap >= 0
    assert np.isfinite(model.result_.gap)
