"""MIG as a torchmetrics.Metric."""

import copy
import pickle
import socket

import pytest
import torch
from torchmetrics import Metric, MetricCollection

from unknot.metrics import MIG
from unknot.metrics.functional import mig


class MeanCode(Metric):
    """A small metric with the same update."""

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


@pytest.fixture
def data():
    generator = torch.Generator().manual_seed(0)
    factors = torch.randint(5, (701, 2), generator=generator)
    mixing, noise = torch.randn(2, 3, generator=generator), torch.randn(701, 3, generator=generator)
    return factors.float() @ mixing + 0.3 * noise, factors


@pytest.fixture
def score(data):
    return torch.tensor(mig(*data))


def update_in_batches(metric, data, size=100):
    for codes, factors in zip(data[0].split(size), data[1].split(size), strict=True):
        metric.update(codes, factors)
    return metric


@pytest.mark.parametrize("size", [1, 64, 100, 701])
def test_batches_add_up_to_the_function(data, score, size):
    assert update_in_batches(MIG(), data, size).compute() == score


def test_bins_are_passed_on(data):
    assert update_in_batches(MIG(bins=3), data).compute() == torch.tensor(mig(*data, bins=3))
    assert mig(*data, bins=3) != mig(*data)


def test_forward_gives_the_batch_and_accumulates(data, score):
    metric = MIG()
    for codes, factors in zip(data[0].split(200), data[1].split(200), strict=True):
        assert metric(codes, factors) == torch.tensor(mig(codes, factors))
    assert metric.compute() == score


def test_reset_forgets(data, score):
    metric = update_in_batches(MIG(), (data[0].flip(0), data[1]))
    assert metric.compute() != score
    metric.reset()
    assert update_in_batches(metric, data).compute() == score


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda metric: pickle.loads(pickle.dumps(metric))])
def test_copies_go_on_by_themselves(data, score, clone):
    half = data[0][:300], data[1][:300]
    metric = update_in_batches(MIG(bins=20), half)
    twin = clone(metric)
    twin.update(data[0][300:], data[1][300:])
    assert twin.compute() == score
    assert metric.compute() == torch.tensor(mig(*half))


def test_in_a_collection(data, score):
    collection = MetricCollection({"mig": MIG(), "coarse": MIG(bins=3), "mean": MeanCode()})
    for _ in range(2):
        results = update_in_batches(collection, data).compute()
        assert results["mig"] == score
        assert results["coarse"] == torch.tensor(mig(*data, bins=3))
        assert results["mean"] == pytest.approx(data[0].mean())
        collection.reset()


def test_more_is_better():
    assert MIG.higher_is_better is True
    assert MIG.is_differentiable is False


def test_graphs_of_the_codes_are_not_kept(data, score):
    metric = MIG()
    metric.update(data[0].clone().requires_grad_() * 1, data[1])
    assert not any(codes.requires_grad for codes in metric.codes)
    assert metric.compute() == score


def test_rows_that_do_not_pair_up_are_refused_at_once(data):
    metric = MIG()
    with pytest.raises(ValueError, match="as many rows, got 10 and 8"):
        metric.update(data[0][:10], data[1][:8])


def test_nan_is_refused(data):
    metric = MIG()
    metric.update(data[0] * torch.nan, data[1])
    with pytest.raises(ValueError, match="codes must be finite"):
        metric.compute()


def test_two_processes_agree_with_one(data, score, tmp_path, monkeypatch, request):
    loopback = [name for _, name in socket.if_nameindex() if name.startswith("lo")]
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", loopback[0])
    monkeypatch.syspath_prepend(request.path.parent)  # spawned processes inherit it
    import two_ranks

    arguments = (str(tmp_path / "store"), *data, str(tmp_path))
    torch.multiprocessing.spawn(two_ranks.run, arguments, nprocs=2)
    results = [torch.load(tmp_path / f"{rank}.pt") for rank in range(2)]
    assert [own for _, own in results] == [351, 350]
    assert [result for result, _ in results] == [score, score]
