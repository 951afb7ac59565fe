"""Every score as a torchmetrics.Metric: batches, copies, collections, processes, pictures."""

import copy
import pickle
import socket

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from torchmetrics import Metric, MetricCollection

from unknot import metrics as m
from unknot.metrics import functional


def codes_and_factors(n=121):
    generator = torch.Generator().manual_seed(0)
    factors = torch.stack([torch.randint(size, (n,), generator=generator) for size in (3, 2)], dim=1)
    mixing, noise = torch.randn(2, 3, generator=generator), torch.randn(n, 3, generator=generator)
    return factors.float() @ mixing + 0.5 * noise, factors


def features_and_labels():
    codes, factors = codes_and_factors()
    return codes, factors[:, 0]


def votes_and_labels():
    generator = torch.Generator().manual_seed(1)
    labels = torch.randint(3, (121,), generator=generator)
    other = torch.randint(4, (121,), generator=generator)
    return torch.where(torch.rand(121, generator=generator) < 0.6, labels, other), labels


ALL = {
    "mig": (m.MIG, functional.mig, codes_and_factors),
    "modularity": (m.Modularity, functional.modularity, codes_and_factors),
    "irs": (m.IRS, functional.irs, codes_and_factors),
    "total_correlation": (m.TotalCorrelation, lambda codes, _: functional.total_correlation(codes), codes_and_factors),
    "unfairness": (m.Unfairness, functional.unfairness, votes_and_labels),
    "information": (
        lambda: m.FactorCodes("information"),
        lambda *rows: functional.information_matrix(*rows).values,
        codes_and_factors,
    ),
    "importance": (m.FactorCodes, lambda *rows: functional.importance_matrix(*rows).values, codes_and_factors),
    "predictability": (
        lambda: m.FactorCodes("predictability"),
        lambda *split: functional.predictability_matrix(*split).values,
        codes_and_factors,
    ),
    "infomec": (m.InfoMEC, functional.infomec, codes_and_factors),
    "mcc": (m.MCC, functional.mcc, codes_and_factors),
    "dci": (m.DCI, functional.dci, codes_and_factors),
    "sap": (m.SAP, functional.sap, codes_and_factors),
    "explicitness": (m.Explicitness, functional.explicitness, codes_and_factors),
    "gbt": (m.DownstreamAccuracy, functional.downstream_accuracy, codes_and_factors),
    "lr": (
        lambda: m.DownstreamAccuracy("lr"),
        lambda *split: functional.downstream_accuracy(*split, "lr"),
        codes_and_factors,
    ),
    "beta_vae": (m.BetaVAEScore, functional.beta_vae_score, features_and_labels),
    "factor_vae": (
        lambda: m.FactorVAEScore(latent_dim=4),
        lambda *split: functional.factor_vae_score(*split, latent_dim=4),
        votes_and_labels,
    ),
}
QUICK = [name for name in ALL if name not in ("importance", "dci", "gbt", "lr")]
ON_ALL_ROWS = (
    *("mig", "modularity", "irs", "total_correlation", "unfairness", "information", "importance"),
    *("infomec", "mcc"),
)


def updated(name, size=121, order=None):
    build, _, draw = ALL[name]
    metric, (left, right) = build(), draw()
    if order is not None:
        left, right = left[order], right[order]
    for part, other in zip(left.split(size), right.split(size), strict=True):
        metric.update(part, other)
    return metric


def same(first, second):
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[key], second[key]) for key in first)
    return torch.equal(first, second)


@pytest.mark.parametrize("name", ALL)
def test_is_the_function_whatever_the_batches_and_their_order(name):
    metric, function = updated(name), ALL[name][1]
    value = metric.compute()
    expected = function(*metric.rows() if name in ON_ALL_ROWS else metric.split())
    if name == "dci":
        expected = {f"dci_{key}": number for key, number in expected.items() if key != "importance"}
        with pytest.warns(DeprecationWarning, match="dci_completeness"):
            assert value["completeness"] == value["dci_completeness"]
    if name in ("dci", "infomec"):
        assert value.keys() == expected.keys() - {"importance"}
        assert all(value[key] == torch.tensor(expected[key]) for key in value)
    else:
        np.testing.assert_array_equal(value.numpy(), np.asarray(expected, dtype=np.float32))
    order = torch.randperm(121, generator=torch.Generator().manual_seed(2))
    assert same(updated(name, size=10, order=order).compute(), value)  # to the last digit


@pytest.mark.parametrize("name", ["mig", "modularity", "irs", "total_correlation", "unfairness", "information"])
def test_the_order_of_rows_hardly_matters_to_the_functions(name):
    _, function, draw = ALL[name]
    np.testing.assert_allclose(updated(name).compute(), function(*draw()), rtol=1e-5)


@pytest.mark.parametrize("name", QUICK)
def test_reset_forgets(name):
    metric = updated(name)
    value = metric.compute()
    left, right = ALL[name][2]()
    metric.reset()
    assert metric.left == []
    metric.update(left.flip(0)[:60], right[:60])
    assert not same(metric.compute(), value)
    metric.reset()
    metric.update(left, right)
    assert same(metric.compute(), value)


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda metric: pickle.loads(pickle.dumps(metric))])
@pytest.mark.parametrize("name", QUICK)
def test_copies_go_on_by_themselves(name, clone):
    build, _, draw = ALL[name]
    metric, (left, right) = build(), draw()
    metric.update(left[:70], right[:70])
    half = clone(metric)
    twin = clone(metric)
    twin.update(left[70:], right[70:])
    assert same(twin.compute(), updated(name).compute())
    assert same(metric.compute(), half.compute())


@pytest.mark.parametrize("name", QUICK)
def test_forward_gives_the_batch_and_accumulates(name):
    build, _, draw = ALL[name]
    metric, alone, (left, right) = build(), build(), draw()
    for part, other in zip(left.split(61), right.split(61), strict=True):
        alone.update(part, other)
        assert same(metric(part, other), alone.compute())
        alone.reset()
    assert same(metric.compute(), updated(name).compute())


class MeanCode(Metric):
    """A small metric with the same update, and states of another kind."""

    full_state_update = False

    def __init__(self):
        super().__init__()
        self.add_state("total", default=torch.tensor(0.0), dist_reduce_fx="sum")
        self.add_state("count", default=torch.tensor(0), dist_reduce_fx="sum")

    def update(self, codes, factors):
        self.total += codes.sum()
        self.count += codes.numel()

    def compute(self):
        return self.total / self.count


def test_in_a_collection():
    names = ["mig", "modularity", "irs", "sap", "explicitness", "total_correlation", "information"]
    collection = MetricCollection({**{name: ALL[name][0]() for name in names}, "mean": MeanCode(), "coarse": m.MIG(3)})
    codes, factors = codes_and_factors()
    for _ in range(2):
        for part, other in zip(codes.split(40), factors.split(40), strict=True):
            collection.update(part, other)
        results = collection.compute()
        for name in names:
            assert same(results[name], updated(name).compute()), name
        assert results["coarse"] == torch.tensor(functional.mig(codes, factors, bins=3))
        assert results["mean"] == pytest.approx(codes.mean())
        collection.reset()


def test_factors_that_are_all_zero_are_not_mistaken_for_none():
    # a collection shares the states of metrics whose first states look alike
    codes, factors = codes_and_factors()
    collection = MetricCollection({"tc": m.TotalCorrelation(), "mig": m.MIG()})
    collection.update(codes[:5], torch.zeros(5, 1, dtype=torch.int64))
    collection.update(codes, factors[:, :1])
    alone = m.MIG()
    alone.update(codes[:5], torch.zeros(5, 1, dtype=torch.int64))
    alone.update(codes, factors[:, :1])
    assert collection.compute()["mig"] == alone.compute()


def test_options_are_passed_on():
    codes, factors = codes_and_factors()
    for metric, expected in (
        (m.MIG(bins=3), functional.mig(codes, factors, bins=3)),
        (m.Modularity(bins=3), functional.modularity(codes, factors, bins=3)),
        (m.IRS(bins=None, quantile=0.5), functional.irs(codes, factors, None, 0.5)),
        (m.Unfairness(reduction="max"), functional.unfairness(factors[:, 0], factors[:, 1], "max")),
    ):
        metric.update(*(factors.T if isinstance(metric, m.Unfairness) else (codes, factors)))
        assert metric.compute() == pytest.approx(expected, rel=1e-6)
    metric = m.SAP(continuous_factors=True)
    metric.update(codes, factors)
    assert metric.compute() == torch.tensor(functional.sap(*metric.split(), continuous_factors=True))


def test_the_split_deals_every_row_to_one_side_by_its_seed():
    codes, factors = codes_and_factors()
    metric = m.SAP(test_fraction=0.25, seed=3)
    metric.update(codes, factors)
    train, known, test, asked = metric.split()
    assert (len(train), len(test)) == (91, 30)
    rows = np.vstack([np.hstack([train, known]), np.hstack([test, asked])])
    whole = np.hstack([codes.numpy(), factors.numpy()])
    np.testing.assert_array_equal(rows[np.lexsort(rows.T)], whole[np.lexsort(whole.T)])
    other = m.SAP(test_fraction=0.25, seed=4)
    other.update(codes, factors)
    assert not np.array_equal(other.split()[2], test)


@pytest.mark.parametrize("fraction", [0.0, 1.0, -1, 2])
def test_the_split_leaves_something_on_both_sides(fraction):
    with pytest.raises(ValueError, match="test_fraction must lie between 0 and 1"):
        m.DCI(test_fraction=fraction)
    metric = m.Explicitness(test_fraction=0.01)
    metric.update(torch.rand(2, 2), torch.zeros(2, 1, dtype=torch.int64))
    assert [len(part) for part in metric.split()] == [1, 1, 1, 1]
    metric = m.Explicitness()
    metric.update(torch.rand(1, 2), torch.zeros(1, 1, dtype=torch.int64))
    with pytest.raises(ValueError, match="Explicitness needs rows to fit on and rows to test on, got 1"):
        metric.compute()


def test_which_way_is_better():
    fewer = {"total_correlation", "unfairness"}
    for name, (build, _, _) in ALL.items():
        metric = build()
        assert metric.is_differentiable is False
        if isinstance(metric, m.FactorCodes):
            assert metric.higher_is_better is None
        else:
            assert metric.higher_is_better is (name not in fewer)


@pytest.mark.parametrize("name", ALL)
def test_plot_draws_one_value_and_several(name):
    metric = updated(name)
    figure, axes = metric.plot()
    assert isinstance(figure, plt.matplotlib.figure.Figure)
    figure.canvas.draw()
    if isinstance(metric, m.FactorCodes):
        assert len(axes) == 3
    else:
        plt.close(figure)
        figure, axes = metric.plot([metric.compute()] * 3)
        assert len(axes.lines if not isinstance(axes, np.ndarray) else axes.flat[0].lines) > 0
    plt.close(figure)


def test_factor_names_are_drawn():
    metric = m.FactorCodes("information", factor_names=["shape", "size"])
    metric.update(*codes_and_factors())
    _, axes = metric.plot()
    assert [label.get_text() for label in axes[0].get_yticklabels()] == ["shape", "size"]
    with pytest.raises(ValueError, match="estimator must be"):
        m.FactorCodes("lasso")


@pytest.mark.parametrize("name", ["mig", "irs", "explicitness", "total_correlation", "beta_vae"])
def test_low_precision_codes(name):
    build, _, draw = ALL[name]
    left, right = draw()
    low, wide = build(), build()
    low.update(left.bfloat16(), right)
    wide.update(left.bfloat16().float(), right)
    assert same(low.compute(), wide.compute())


def test_graphs_of_the_codes_are_not_kept():
    codes, factors = codes_and_factors()
    metric = m.MIG()
    metric.update(codes.clone().requires_grad_() * 1, factors)
    assert not any(part.requires_grad for part in metric.left)
    assert metric.compute() == updated("mig").compute()


@pytest.mark.parametrize("name", [name for name in ALL if name != "total_correlation"])
def test_rows_that_do_not_pair_up_are_refused_at_once(name):
    build, _, draw = ALL[name]
    metric, (left, right) = build(), draw()
    with pytest.raises(ValueError, match="must have as many rows, got 10 and 8"):
        metric.update(left[:10], right[:8])
    assert metric.left == []


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("name", [name for name in ALL if ALL[name][2] is not votes_and_labels])
def test_codes_that_are_not_numbers_are_refused(name, bad):
    build, _, draw = ALL[name]
    metric, (left, right) = build(), draw()
    left = left.clone()
    left[7, 1] = bad
    metric.update(left, right)
    with pytest.raises(ValueError, match="codes must be finite: 1 of"):
        metric.compute()


def test_two_processes_agree_with_one_to_the_last_digit(tmp_path, monkeypatch, request):
    loopback = [name for _, name in socket.if_nameindex() if name.startswith("lo")]
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", loopback[0])
    monkeypatch.syspath_prepend(request.path.parent)  # spawned processes inherit it
    import two_ranks

    cases = {name: (build(), *draw()) for name, (build, _, draw) in ALL.items()}
    torch.multiprocessing.spawn(two_ranks.run, (str(tmp_path / "store"), cases, str(tmp_path)), nprocs=2)
    results = [torch.load(tmp_path / f"{rank}.pt") for rank in range(2)]
    for name in ALL:
        expected = updated(name).compute()
        for values, _ in results:
            assert same(values[name], expected), name
    assert [set(rows.values()) for _, rows in results] == [{61}, {60}]


BAD = {
    "flat codes": (torch.rand(4), torch.ones(4, 2, dtype=torch.long), r"codes must have shape \[N, D\]"),
    "complex factors": (torch.rand(4, 2), torch.rand(4, 2).cfloat(), "factors must be integer classes"),
    "rows": (torch.rand(4, 2), torch.ones(3, 2, dtype=torch.long), "as many rows, got 4 and 3"),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("kind", [m.MIG, m.DCI, m.SAP])
def test_a_bad_batch_is_refused_when_it_comes(case, kind):
    codes, factors, message = BAD[case]
    metric = kind()
    with pytest.raises(ValueError, match=message):
        metric.update(codes, factors)
    assert not metric.left


def test_widths_may_not_change():
    metric = m.MIG()
    metric.update(*codes_and_factors())
    with pytest.raises(ValueError, match=r"as wide as in the first update, \[3\], got \[2\]"):
        metric.update(torch.rand(4, 2), torch.ones(4, 2, dtype=torch.long))


def test_arrays_are_taken():
    codes, factors = codes_and_factors()
    tensors, arrays = m.MIG(), m.MIG()
    tensors.update(codes, factors)
    arrays.update(codes.numpy(), factors.numpy())
    assert tensors.compute() == arrays.compute()


def test_one_number_of_dci_can_be_logged_and_drawn():
    codes, factors = codes_and_factors()
    collection = MetricCollection({"dci": m.DCI(score="disentanglement"), "mig": m.MIG()})
    collection.update(codes, factors)
    whole = m.DCI()
    whole.update(codes, factors)
    values = collection.compute()
    assert values["dci"] == whole.compute()["dci_disentanglement"]
    collection.plot()
    plt.close("all")
    with pytest.raises(ValueError, match="score must be one of disentanglement, completeness"):
        m.DCI(score="dci")


def test_compute_before_update_says_so() -> None:
    for metric in (m.MIG(), m.DCI(), m.AdjustedRandIndex(), m.SetAveragePrecision()):
        with (
            pytest.warns(UserWarning, match="before"),
            pytest.raises(ValueError, match=r"call update\(\.\.\.\) before"),
        ):
            metric.compute()


def test_labels_that_are_missing_do_not_count() -> None:
    codes, factors = codes_and_factors()
    labels = factors.float()
    labels[::3] = torch.nan
    negative = torch.where(labels.isnan(), -1, factors)
    kept = torch.arange(len(codes)) % 3 > 0
    for build in (m.MIG, m.IRS, m.SAP, m.Explicitness):
        values = []
        for rows in (labels, negative):
            metric = build()
            for part in (slice(0, 50), slice(50, None)):
                metric.update(codes[part], rows[part])
            values.append(metric.compute())
        assert values[0] == values[1]
        if build in (m.MIG, m.IRS):
            metric = build()
            metric.update(codes[kept], factors[kept])
            assert metric.compute() == values[0]


def test_a_collection_says_what_its_numbers_are() -> None:
    codes, factors = codes_and_factors()
    collection = MetricCollection([m.MIG(), m.DCI(), m.InfoMEC()])
    collection.update(codes, factors)
    assert {"MIG", "dci_disentanglement", "dci_informativeness_test", "infom"} <= collection.compute().keys()
    plt.close(collection.plot(together=True)[0])
    single = MetricCollection({"dci": m.DCI(score="disentanglement"), "mig": m.MIG()})
    single.update(codes, factors)
    for figure, _ in single.plot():
        plt.close(figure)
    for cls, bounds in ((m.MIG, (0, 1)), (m.TotalCorrelation, (0, None)), (m.AdjustedRandIndex, (-1, 1))):
        assert (cls.plot_lower_bound, cls.plot_upper_bound) == bounds


def test_a_collection_of_scores_plots_metrics_of_several_numbers() -> None:
    codes, factors = codes_and_factors()
    collection = m.ScoreCollection({"first": m.DCI(), "second": m.DCI(seed=1), "mig": m.MIG()}, prefix="val/")
    steps = [collection(codes, factors) for _ in range(2)]
    assert {"val/mig", "val/first_dci_disentanglement", "val/second_dci_completeness"} <= steps[0].keys()
    for drawn in (collection.plot(), collection.plot(steps[0]), collection.plot(steps)):
        assert [axes.get_ylabel() for _, axes in drawn] == ["DCI", "MIG", "DCI"]  # in the order of names
        for figure, _ in drawn:
            plt.close(figure)
    plt.close(collection.plot(steps, together=True)[0])
    objects = m.ScoreCollection([m.SetAveragePrecision(), m.InfoMEC()])
    assert all(metric.names for metric in objects.values())
