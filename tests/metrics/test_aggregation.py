"""Aggregations of hand-made matrices, independent groups, and how factors merge."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import cophenet, fcluster, is_valid_linkage

from unknot.metrics import draw_matrices, plot_matrix
from unknot.metrics.functional import (
    AGGREGATIONS,
    FactorCodeMatrix,
    dci_completeness,
    dci_disentanglement,
    gap,
    importance_matrix,
    independent_groups,
    information_matrix,
    merge_factors,
    modularity_of,
    predictability_matrix,
)

LN = np.log


@pytest.mark.parametrize(
    ("matrix", "d", "c"),
    [
        (np.eye(10), 1, 1),
        (np.vstack([np.eye(10), np.eye(10)]) / 2, 1, 1 - LN(2) / LN(20)),
        (np.repeat(np.eye(5), 2, axis=1), 1 - LN(2) / LN(10), 1),  # one code for two of ten factors
        (np.ones((3, 4)), 0, 0),
        (np.zeros((3, 4)), 0, 0),
        ([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]], 1, 1),
        ([[2.0], [0.0]], 1, 1),
        ([[0.3], [0.7]], 1, 1 + (0.3 * LN(0.3) + 0.7 * LN(0.7)) / LN(2)),
        ([[0.3, 0.7]], 1 + (0.3 * LN(0.3) + 0.7 * LN(0.7)) / LN(2), 1),
        ([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]], 1 / 3 + 2 / 3 * (1 - LN(2) / LN(3)), 1),  # rows weigh by their mass
    ],
)
def test_dci_by_hand(matrix, d, c):
    assert dci_disentanglement(matrix) == pytest.approx(d, abs=1e-12)
    assert dci_completeness(matrix) == pytest.approx(c, abs=1e-12)


def test_gap_by_hand():
    matrix = [[0.9, 0.1, 0.4], [0.2, 0.7, 0.4], [0.1, 0.6, 0.0]]
    assert gap(matrix) == pytest.approx((0.7 + 0.1 + 0) / 3)
    assert gap(matrix, [1, 0.5, 2]) == pytest.approx((0.7 + 0.2 + 0) / 3)
    assert gap([[0.4, 0.6]]) == pytest.approx(0.5)


def test_factors_without_a_ceiling_are_left_out_of_the_gap():
    matrix = [[0.9, 0.0], [0.2, 0.0]]
    assert gap(matrix, [1.0, 0.0]) == pytest.approx(0.7)
    assert gap(matrix, [0.0, 0.0]) == 0.0


def test_modularity_by_hand():
    assert modularity_of([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]) == pytest.approx(2 / 3)
    assert modularity_of([[2.0, 1.0, 1.0]]) == pytest.approx(1 - (1 + 1) / (4 * 2))
    assert modularity_of([[1.0, 1.0]]) == 0.0
    assert modularity_of([[1.0], [3.0], [0.0]]) == pytest.approx(2 / 3)
    assert modularity_of([[1e-15, 1e-16]]) == 0.0  # rounding, not information


matrices = st.tuples(st.integers(1, 5), st.integers(1, 5)).flatmap(
    lambda shape: st.lists(
        st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.75, 1.0]), min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]
    ).map(lambda values: np.array(values).reshape(shape))
)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(matrix=matrices, seed=st.integers(0, 1000))
def test_aggregations_ignore_order_and_stay_in_range(matrix, seed):
    rng = np.random.default_rng(seed)
    turned = matrix[rng.permutation(len(matrix))][:, rng.permutation(matrix.shape[1])]
    for name, aggregate in AGGREGATIONS.items():
        whole = FactorCodeMatrix(matrix, np.ones(matrix.shape[1]))
        score = aggregate(whole)
        assert 0 <= score <= 1, name
        assert aggregate(whole._replace(values=turned)) == pytest.approx(score, abs=1e-12), name
    for aggregate in (dci_disentanglement, dci_completeness, modularity_of):
        assert aggregate(matrix * 8) == pytest.approx(aggregate(matrix), abs=1e-12)
    assert dci_completeness(matrix) == pytest.approx(dci_disentanglement(matrix.T), abs=1e-12)


def test_any_matrix_goes_with_any_aggregation():
    rng = np.random.default_rng(0)
    factors = np.hstack([rng.integers(0, (3, 2), size=(90, 2)), np.ones((90, 1), dtype=int)])  # one never varies
    codes = factors @ rng.normal(size=(3, 3)) + 0.2 * rng.normal(size=(90, 3))
    estimates = (
        importance_matrix(codes, factors),
        information_matrix(codes, factors),
        predictability_matrix(codes[:60], factors[:60], codes[60:], factors[60:]),
    )
    for matrix, aggregate in itertools.product(estimates, AGGREGATIONS.values()):
        assert matrix.values.shape == (3, 3)
        assert 0 <= aggregate(matrix) <= 1


# Groups


def union_find(matrix, threshold):
    """Connected components of codes and factors with an edge: the sets of factors in each."""
    codes, factors = matrix.shape
    parent = list(range(codes + factors))

    def root(node):
        while parent[node] != node:
            node = parent[node]
        return node

    edges = [(d, codes + k) for d in range(codes) for k in range(factors) if matrix[d, k] >= threshold]
    for a, b in edges:
        parent[root(a)] = root(b)
    groups = {}
    for k in {b for _, b in edges}:
        groups.setdefault(root(k), set()).add(k - codes)
    return sorted(map(sorted, groups.values()))


@settings(max_examples=80, deadline=None, derandomize=True)
@given(matrix=matrices)
def test_groups_are_those_of_union_find(matrix):
    curve = independent_groups(matrix)
    assert curve.threshold.tolist() == sorted(set(matrix[matrix > 0].tolist()), reverse=True)
    for threshold, connected, groups in zip(*curve, strict=True):
        expected = union_find(matrix, threshold)
        assert groups == len(expected)
        assert connected == sum(map(len, expected))
    assert 0 <= curve.area <= 1


@settings(max_examples=80, deadline=None, derandomize=True)
@given(matrix=matrices)
def test_factors_merge_when_their_groups_do(matrix):
    tree = merge_factors(matrix)
    factors = matrix.shape[1]
    assert tree.shape == (factors - 1, 4)
    if factors == 1:
        return
    assert is_valid_linkage(tree)
    height, top = cophenet(tree), matrix.max()
    for (i, j), meets in zip(itertools.combinations(range(factors), 2), height, strict=True):
        thresholds = sorted(set(matrix[matrix > 0].tolist()), reverse=True)
        together = [t for t in thresholds if any({i, j} <= set(group) for group in union_find(matrix, t))]
        assert meets == pytest.approx(top - max(together, default=0), abs=1e-12)


def test_area_of_the_curve_by_hand():
    assert independent_groups(np.eye(3)).area == 1.0
    assert independent_groups(np.zeros((2, 2))).area == 0.0
    # thresholds (0.9, 0.8]: 1 group; (0.8, 0.2]: 2 groups; (0.2, 0]: 1 group; over 0.9 × 2 factors
    assert independent_groups([[0.9, 0.0], [0.2, 0.8]]).area == pytest.approx((0.1 + 2 * 0.6 + 0.2) / 1.8)
    assert independent_groups(np.ones((2, 4))).area == pytest.approx(1 / 4)


def test_entangled_factors_merge_first():
    matrix = np.array([[0.9, 0.8, 0.0, 0.1], [0.0, 0.0, 0.7, 0.0], [0.0, 0.0, 0.0, 0.6]])
    tree = merge_factors(matrix)
    assert tree[0, :2].tolist() == [0, 1]
    assert tree[:, 2].tolist() == pytest.approx([0.1, 0.8, 0.9])  # merged at thresholds 0.8 and 0.1, and never
    flat = fcluster(tree, 0.5, "distance")
    assert flat[0] == flat[1]
    assert len(set(flat)) == 3


@pytest.mark.parametrize("function", [dci_disentanglement, gap, modularity_of, independent_groups, merge_factors])
@pytest.mark.parametrize(
    ("matrix", "message"),
    [([[1.0, -0.5]], "no negative entries"), ([[np.nan]], "must be finite"), ([1.0, 2.0], r"shape \[N, D\]")],
)
def test_what_is_no_matrix_is_refused(function, matrix, message):
    with pytest.raises(ValueError, match=message):
        function(matrix)


# Pictures


@pytest.mark.parametrize("matrix", [np.eye(3), np.zeros((2, 2)), [[0.5]], np.ones((1, 4)), np.full((60, 5), 0.1)])
def test_pictures_of_any_matrix(matrix):
    figure, axes = plot_matrix(matrix)
    figure.canvas.draw()
    heat, curve, _ = axes
    names = [label.get_text() for label in heat.get_yticklabels()]
    assert names == [f"factor {k}" for k in range(np.shape(matrix)[1])]
    assert curve.get_ylim()[1] >= np.shape(matrix)[1]
    numbers = np.size(matrix) <= 200
    assert len(heat.texts) == (np.size(matrix) if numbers else 0)


def test_a_picture_of_several_matrices_is_written_whole(tmp_path):
    matrices = {name: FactorCodeMatrix(np.eye(2), np.ones(2)) for name in ("one", "other")}
    path = draw_matrices(matrices, tmp_path / "new" / "both.png", ("shape", "size"))
    assert path.read_bytes().startswith(b"\x89PNG")
    assert [file.name for file in path.parent.iterdir()] == ["both.png"]


def test_names_must_fit_the_factors():
    with pytest.raises(ValueError, match="factor_names must name 3 factors, got 2"):
        plot_matrix(np.eye(3), ["a", "b"])
