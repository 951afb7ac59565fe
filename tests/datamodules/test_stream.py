import functools
import itertools
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from unknot.datamodules import (
    ColorDSprites,
    DSprites,
    FactorDataModule,
    FactorSpace,
    GroundTruthDataset,
    NoisyDSprites,
    Resized,
)
from unknot.lightning import pl
from unknot.randomness import derive_seed

pytestmark = pytest.mark.usefixtures("drawn")


@functools.cache
def opened(kind: type[DSprites]) -> DSprites:
    dataset = kind()
    dataset.prepare()
    return dataset


def module(dataset: GroundTruthDataset | None = None, **options: Any) -> FactorDataModule:
    options = {"batch_size": 8, "num_val_batches": 3, "seed": 0} | options
    return FactorDataModule(dataset or opened(DSprites), **options)


def training(data: FactorDataModule, batches: int = 5) -> Tensor:
    return torch.stack(list(itertools.islice(data.train_dataloader(), batches)))


def validation(data: FactorDataModule) -> Tensor:
    return torch.stack(list(data.val_dataloader()))


def trainer(rank: int = 0, **options: Any) -> pl.Trainer:
    class OfRank(pl.Trainer):
        @property
        def global_rank(self) -> int:
            return rank

    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    return OfRank(accelerator="cpu", **quiet | {"enable_checkpointing": False} | options)


class Recorder(pl.LightningModule):
    """Keeps the batches it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.trained: list[Tensor] = []
        self.validated: list[Tensor] = []

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        self.trained.append(batch)
        return self.weight * batch.mean()

    def validation_step(self, batch: Tensor, batch_idx: int) -> None:
        self.validated.append(batch)

    def predict_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        return batch

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters())


@pytest.mark.parametrize(("kind", "channels"), [(DSprites, 1), (NoisyDSprites, 3)])
def test_batches_are_images(kind: type[DSprites], channels: int) -> None:
    images = training(module(opened(kind)))
    assert images.shape == (5, 8, channels, 64, 64)
    assert images.dtype == torch.float32
    assert 0 <= images.min() < images.max() <= 1


def test_the_seed_sets_the_stream() -> None:
    first = training(module(seed=3))
    assert torch.equal(training(module(seed=3)), first)
    assert not torch.equal(training(module(seed=4)), first)


def test_the_stream_does_not_touch_the_global_generator() -> None:
    torch.manual_seed(0)
    state = torch.get_rng_state()
    first = training(module(opened(ColorDSprites)))
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(1)
    assert torch.equal(training(module(opened(ColorDSprites))), first)


def test_no_two_batches_are_the_same() -> None:
    images = training(module(), batches=50)
    assert len(images.flatten(1).unique(dim=0)) == 50


def test_factors_are_drawn_from_the_whole_grid() -> None:
    data = module(batch_size=500)
    images = training(data, batches=2).flatten(0, 1)
    seen = images.amax(dim=(0, 1)).bool()
    assert seen[12:52, 12:52].all()
    assert len(images.flatten(1).unique(dim=0)) > 990


@pytest.mark.parametrize("kind", [DSprites, NoisyDSprites])
def test_the_number_of_workers_does_not_matter(kind: type[DSprites]) -> None:
    alone, together = module(opened(kind)), module(opened(kind), num_workers=2)
    assert torch.equal(training(together, batches=7), training(alone, batches=7))
    assert torch.equal(validation(together), validation(alone))


def test_validation_is_always_the_same() -> None:
    data = module()
    first = validation(data)
    assert first.shape == (3, 8, 1, 64, 64)
    training(data)
    assert torch.equal(validation(data), first)
    assert torch.equal(validation(module(seed=99)), first)
    assert torch.equal(torch.stack(list(data.test_dataloader())), first)
    assert torch.equal(torch.stack(list(data.predict_dataloader())), first)
    assert len(first.flatten(1).unique(dim=0)) == 3


@pytest.mark.parametrize("seed", [0, 1])
def test_validation_differs_from_training(seed: int) -> None:
    data = module(seed=seed)
    held_out = validation(data).flatten(0, 1).flatten(1)
    trained = training(data, batches=3).flatten(0, 1).flatten(1)
    assert not (held_out[:, None] == trained[None]).all(dim=2).diagonal().any()


def test_every_rank_has_its_own_stream() -> None:
    streams, held_out = [], []
    for rank in range(3):
        data = module()
        data.trainer = trainer(rank)
        streams.append(training(data))
        held_out.append(validation(data))
    assert len(torch.stack(streams).flatten(0, 1).flatten(1).unique(dim=0)) == 15
    assert len(torch.stack(held_out).flatten(0, 1).flatten(1).unique(dim=0)) == 9
    assert torch.equal(streams[0], training(module()))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_epochs_go_on_in_the_stream(num_workers: int) -> None:
    model, data = Recorder(), module(num_workers=num_workers)
    trainer(max_epochs=3, limit_train_batches=2, num_sanity_val_steps=1).fit(model, datamodule=data)
    assert torch.equal(torch.stack(model.trained), training(module(), batches=6))
    held_out = list(validation(module()))
    assert torch.equal(torch.stack(model.validated), torch.stack(held_out[:1] + 3 * held_out))


@pytest.mark.parametrize("steps", [3, 4])
def test_a_resumed_run_goes_on_in_the_stream(tmp_path: Path, steps: int) -> None:
    epochs = {"limit_train_batches": 4, "num_sanity_val_steps": 0, "limit_val_batches": 0}
    first = trainer(max_steps=steps, **epochs)
    first.fit(Recorder(), datamodule=module(seed=5))
    first.save_checkpoint(tmp_path / "stopped.ckpt")

    model = Recorder()
    second = trainer(max_steps=7, **epochs)
    second.fit(model, datamodule=module(seed=None), ckpt_path=tmp_path / "stopped.ckpt")
    assert torch.equal(torch.stack(model.trained), training(module(seed=5), batches=7)[steps:])


def test_without_a_seed_the_global_one_counts() -> None:
    runs = []
    for seed in (1, 1, 2):
        pl.seed_everything(seed, verbose=False)
        model = Recorder()
        trainer(max_steps=2, limit_val_batches=0).fit(model, datamodule=module(seed=None))
        runs.append(torch.stack(model.trained))
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])
    assert torch.equal(runs[0], training(module(seed=1), batches=2))


def test_prediction_sees_the_validation_batches() -> None:
    predictions = trainer().predict(Recorder(), datamodule=module())
    assert torch.equal(torch.stack(predictions), validation(module()))


def test_fitting_prepares_the_data(empty_cache: Path) -> None:
    class Slow(GroundTruthDataset):
        name = "slow"
        factor_space = DSprites.factor_space
        image_shape = (1, 2, 2)
        prepared = 0

        def prepare(self) -> None:
            self.prepared += 1

        def observe(self, factors: Tensor, generator: torch.Generator | None = None) -> Tensor:
            return torch.zeros(len(factors), 1, 2, 2)

    dataset = Slow()
    trainer(max_steps=1, limit_val_batches=0).fit(Recorder(), datamodule=module(dataset))
    assert dataset.prepared == 1


def test_a_module_in_use_travels_light() -> None:
    data = module()
    data.trainer = trainer()
    first = training(data)
    pickled = pickle.dumps(data)
    assert len(pickled) < 20_000
    assert data.trainer is not None
    assert torch.equal(training(pickle.loads(pickled)), first)


@pytest.mark.parametrize(
    ("option", "value", "least"),
    [
        *[("batch_size", 0, 1), ("batch_size", -3, 1), ("batch_size", "8", 1), ("batch_size", 2.0, 1)],
        *[("num_val_batches", 0, 1), ("num_workers", -1, 0), ("steps_per_epoch", 0, 1)],
    ],
)
def test_bad_arguments_are_refused(option: str, value: int, least: int) -> None:
    with pytest.raises(ValueError, match=f"{option} must be a whole number of at least {least}, got {value!r}"):
        module(**{option: value})


@pytest.mark.parametrize("seed", [-1, 2**63, 2**64 - 1])
def test_any_64_bit_seed_will_do(seed: int) -> None:
    images = training(module(seed=seed), batches=2)
    assert torch.equal(training(module(seed=seed), batches=2), images)
    assert not torch.equal(training(module(), batches=2), images)


def test_derived_seeds_differ_and_suit_torch() -> None:
    keys = list(itertools.product([0, 1, 2**40, -1], [0, 1], range(3), range(50)))
    seeds = [derive_seed(*key) for key in keys]
    assert len(set(seeds)) == len(keys)
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert max(seeds).bit_length() == 63
    assert seeds == [derive_seed(*key) for key in keys]


def test_setup_works_without_a_trainer() -> None:
    streams = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        data = module(seed=None)
        data.prepare_data()
        data.setup("fit")
        streams.append(training(data))
    assert torch.equal(streams[0], streams[1])
    assert not torch.equal(streams[0], streams[2])
    assert torch.equal(streams[0], training(module(seed=1)))


def test_an_epoch_is_a_number_of_steps_and_the_stream_goes_on() -> None:
    loader = module(steps_per_epoch=3).train_dataloader()
    assert len(loader) == 3
    assert len(module().train_dataloader()) == 1000
    assert torch.equal(torch.stack([*loader, *loader]), training(module(), batches=6))
    assert len(module().val_dataloader()) == 3


def test_factors_come_on_request_and_images_at_another_size() -> None:
    dataset = opened(DSprites)
    images, factors = next(iter(module(dataset, with_factors=True).train_dataloader()))
    assert torch.equal(dataset.observe(factors), images)
    assert torch.equal(images, next(iter(module(dataset).train_dataloader())))
    small = FactorDataModule(Resized(dataset, 16, cached=False), batch_size=8, seed=0)
    assert small.image_shape == (1, 16, 16)
    assert isinstance(FactorDataModule(dataset, image_size=16).dataset, Resized)
    assert FactorDataModule(dataset, image_size=16).image_shape == (1, 16, 16)


def test_a_class_is_no_data_set() -> None:
    with pytest.raises(ValueError, match=r"dataset must be a ground-truth data set such as DSprites\(\), got <class"):
        FactorDataModule(DSprites)  # type: ignore[arg-type]


def test_a_data_set_of_ones_own_says_what_it_is() -> None:
    class Silent(GroundTruthDataset):
        factor_space = FactorSpace(("a", "b"), (3, 4))

        def observe(self, factors: Tensor, generator: torch.Generator | None = None) -> Tensor:
            return torch.zeros(len(factors), 1, 16, 16)

    with pytest.raises(ValueError, match="Silent has no name and no image_shape: your own data set must define"):
        FactorDataModule(Silent())
