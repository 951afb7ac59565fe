import itertools
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torchvision.utils import save_image

from unknot.datamodules.published.clevr import CLEVR
from unknot.datamodules.scenes.clevr_scenes import ClevrScenes, draw_scenes, sample_scenes
from unknot.datamodules.scenes.layout import SceneDataset, SetBatch
from unknot.datamodules.sets import SetDataModule
from unknot.datamodules.transforms import jittered
from unknot.lightning import pl


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """CLEVR's folder with 50 tiny images."""
    root = tmp_path_factory.mktemp("clevr")
    scenes = sample_scenes(50, torch.Generator().manual_seed(0), 3, 6, (12, 18))
    images, _ = draw_scenes(scenes, (12, 18))
    (root / "scenes").mkdir()
    (root / "images" / "train").mkdir(parents=True)
    annotations = scenes.annotations((12, 18))
    for image, scene in zip(images, annotations, strict=True):
        save_image(image / 255, root / "images" / "train" / scene["image_filename"])
    (root / "scenes" / "CLEVR_train_scenes.json").write_text(json.dumps({"scenes": annotations}))
    return root


def endless(**options: Any) -> SetDataModule:
    options = {"batch_size": 3, "num_val_batches": 2, "seed": 0} | options
    return SetDataModule(ClevrScenes(image_size=16, max_objects=5), **options)


@pytest.fixture
def finite(folder: Path) -> Any:
    def make(**options: Any) -> SetDataModule:
        options = {"batch_size": 7, "seed": 0} | options
        return SetDataModule(CLEVR(folder, image_size=16, max_objects=6), **options)

    return make


def trainer(rank: int = 0, ranks: int = 1, **options: Any) -> pl.Trainer:
    class OfRank(pl.Trainer):
        global_rank = property(lambda self: rank)
        world_size = property(lambda self: ranks)

    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    return OfRank(accelerator="cpu", **quiet | {"enable_checkpointing": False} | options)


class Recorder(pl.LightningModule):
    """Keeps the targets of the batches it is given; no two examples have the same."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.trained: list[Tensor] = []
        self.validated: list[Tensor] = []

    def training_step(self, batch: SetBatch, batch_idx: int) -> Tensor:
        self.trained.append(batch.targets)
        return self.weight * batch.images.mean()

    def validation_step(self, batch: SetBatch, batch_idx: int) -> None:
        self.validated.append(batch.targets)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def targets(loader: Any, batches: int | None = None) -> list[Tensor]:
    return [batch.targets for batch in itertools.islice(loader, batches)]


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    return len(one) == len(other) and all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def numbers(data: SetDataModule, batches: list[Tensor]) -> list[int]:
    """Which examples of the data set these are."""
    known = {row.numpy().tobytes(): i for i, row in enumerate(data.dataset._targets)}  # type: ignore[attr-defined]
    return [known[row.numpy().tobytes()] for batch in batches for row in batch]


# Endless


def test_endless_batches() -> None:
    images, sets, masks = next(iter(endless().train_dataloader()))
    assert (images.shape, sets.shape, masks.shape) == ((3, 3, 16, 16), (3, 5, 19), (3, 16, 16))
    held_out = list(endless().val_dataloader())
    assert len(held_out) == 2
    assert isinstance(held_out[0], SetBatch)


def test_the_endless_stream_is_seeded_and_apart_from_validation() -> None:
    first = targets(endless().train_dataloader(), 4)
    assert same(targets(endless().train_dataloader(), 4), first)
    assert not same(targets(endless(seed=1).train_dataloader(), 4), first)
    assert same(targets(endless(num_workers=2).train_dataloader(), 4), first)
    held_out = targets(endless().val_dataloader())
    assert same(targets(endless(seed=1).val_dataloader()), held_out)
    assert same(targets(endless().test_dataloader()), held_out)
    assert same(targets(endless().predict_dataloader()), held_out)
    assert not any(torch.equal(a, b) for a in first for b in held_out)


def test_ranks_draw_their_own_scenes() -> None:
    streams = []
    for rank in range(2):
        data = endless()
        data.trainer = trainer(rank, 2)
        streams += targets(data.train_dataloader(), 2) + targets(data.val_dataloader())
    assert len(torch.stack(streams).flatten(1).unique(dim=0)) == 8


@pytest.mark.parametrize("steps", [2, 3])
def test_a_resumed_endless_run_goes_on(tmp_path: Path, steps: int) -> None:
    options = {"limit_train_batches": 3, "limit_val_batches": 0}
    first = trainer(max_steps=steps, **options)
    first.fit(Recorder(), datamodule=endless(seed=5))
    first.save_checkpoint(tmp_path / "stopped.ckpt")
    model = Recorder()
    trainer(max_steps=5, **options).fit(model, datamodule=endless(seed=None), ckpt_path=tmp_path / "stopped.ckpt")
    assert same(model.trained, targets(endless(seed=5).train_dataloader(), 5)[steps:])


# Of a fixed number


def test_an_epoch_is_a_pass_through_the_data(finite: Any) -> None:
    data = finite()
    loader = data.train_dataloader()
    seen = numbers(data, targets(loader))
    assert len(loader) == 6
    assert len(seen) == len(set(seen)) == 42
    assert seen != sorted(seen)
    held_out = numbers(data, targets(data.val_dataloader()))
    assert held_out == [0, 1, 2, 3, 4]
    assert set(seen).isdisjoint(held_out)
    assert data.train_dataloader().dataset[3].masks is None


def test_every_epoch_has_another_order(finite: Any) -> None:
    model, data = Recorder(), finite()
    trainer(max_epochs=3, num_sanity_val_steps=0).fit(model, datamodule=data)
    epochs = [numbers(data, model.trained[6 * i : 6 * i + 6]) for i in range(3)]
    assert [len(set(epoch)) for epoch in epochs] == [42, 42, 42]
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]
    assert len(set().union(*epochs)) > 42  # those left over in one epoch get their turn
    assert len(model.validated) == 3
    assert same(model.trained[:6], targets(finite().train_dataloader()))


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("steps", [4, 6, 9])
def test_a_resumed_run_goes_on_within_its_epoch(
    finite: Any, tmp_path: Path, recwarn: pytest.WarningsRecorder, steps: int, num_workers: int
) -> None:
    saving = pl.callbacks.ModelCheckpoint(tmp_path, "{step}", every_n_train_steps=1, save_top_k=-1)
    whole = Recorder()
    options = {"max_epochs": 3, "limit_val_batches": 0}
    trainer(**options, enable_checkpointing=True, callbacks=saving).fit(whole, datamodule=finite())
    model = Recorder()
    again = finite(seed=None, num_workers=num_workers)
    trainer(**options).fit(model, datamodule=again, ckpt_path=tmp_path / f"step={steps}.ckpt")
    assert same(model.trained, whole.trained[steps:])
    assert not [w for w in recwarn if "resum" in str(w.message) or "IterableDataset" in str(w.message)]


def test_a_run_that_was_stopped_goes_on_with_the_next_batch(finite: Any, tmp_path: Path) -> None:
    first = trainer(max_steps=4, limit_val_batches=0)
    first.fit(Recorder(), datamodule=finite())
    first.save_checkpoint(tmp_path / "stopped.ckpt")
    model, whole = Recorder(), Recorder()
    trainer(max_steps=15, limit_val_batches=0).fit(whole, datamodule=finite())
    resumed = trainer(max_steps=15, limit_val_batches=0)
    resumed.fit(model, datamodule=finite(seed=None), ckpt_path=tmp_path / "stopped.ckpt")
    assert same(model.trained, whole.trained[4:])


def test_ranks_share_no_example_of_a_pass(finite: Any) -> None:
    seen, held_out = [], []
    for rank in range(2):
        data = finite(batch_size=3)
        data.trainer = trainer(rank, 2)
        assert len(data.train_dataloader()) == 7
        seen.append(numbers(data, targets(data.train_dataloader())))
        held_out.append(numbers(data, targets(data.val_dataloader())))
    assert len(seen[0]) == len(seen[1]) == 21
    assert len({*seen[0], *seen[1]}) == 42
    assert sorted(held_out[0] + held_out[1]) == [0, 1, 2, 3, 4]


def test_the_seed_of_a_pass(finite: Any) -> None:
    first = targets(finite().train_dataloader())
    state = torch.get_rng_state()
    assert same(targets(finite().train_dataloader()), first)
    assert same(targets(finite(num_workers=2).train_dataloader()), first)
    assert not same(targets(finite(seed=1).train_dataloader()), first)
    assert torch.equal(torch.get_rng_state(), state)


def test_validation_on_other_data(finite: Any, folder: Path) -> None:
    other = CLEVR(folder, image_size=16, max_objects=5)
    data = SetDataModule(ClevrScenes(image_size=16), val_dataset=other, batch_size=4, seed=0)
    held_out = targets(data.val_dataloader())
    assert sum(map(len, held_out)) == len(other)
    assert [len(batch) for batch in held_out[:-1]] == [4] * (len(held_out) - 1)
    assert torch.equal(torch.cat(held_out), other._targets)
    drawn = finite(val_dataset=ClevrScenes(image_size=16), num_val_batches=2)
    assert [len(batch) for batch in targets(drawn.val_dataloader())] == [7, 7]
    assert len(drawn.train_dataloader()) == 7  # nothing is held out of the 50


def test_scenes_in_a_file_are_passed_through(empty_cache: Path) -> None:
    data = SetDataModule(ClevrScenes(image_size=16, num_scenes=40), batch_size=9, seed=0)
    data.prepare_data()
    assert len(list(empty_cache.glob("[!.]*"))) == 1
    batches = list(data.train_dataloader())
    assert len(batches) == 4
    rows = torch.cat([batch.targets for batch in batches]).flatten(1)
    assert len(rows.unique(dim=0)) == 36
    assert all(batch.masks is not None for batch in batches)
    assert len(torch.cat(targets(data.val_dataloader()))) == 4


def test_at_most_512_are_held_out() -> None:
    class Numbers(SceneDataset):
        def __len__(self) -> int:
            return 70_000

    assert SetDataModule(Numbers()).num_held_out == 512


def test_a_module_in_use_travels_light(finite: Any) -> None:
    data = finite()
    data.trainer = trainer()
    assert same(targets(pickle.loads(pickle.dumps(data)).train_dataloader()), targets(data.train_dataloader()))
    assert len(pickle.dumps(endless())) < 3000


def test_too_large_batches_are_refused(finite: Any) -> None:
    with pytest.raises(ValueError, match=r"A batch takes 60 examples .* there are 45 to train on: lower batch_size"):
        finite(batch_size=60).train_dataloader()
    data = finite(batch_size=30)
    data.trainer = trainer(0, 2)
    with pytest.raises(ValueError, match=r"A batch takes 60 examples \(batch_size 30, 2 ranks\)"):
        data.train_dataloader()
    with pytest.raises(ValueError, match="batch_size must be a whole number of at least 1"):
        finite(batch_size=0)


# Other colours


@pytest.mark.parametrize("make", [endless, "finite"])
def test_jittered_colours_are_those_of_each_training_image_alone(make: Any, finite: Any) -> None:
    make = finite if make == "finite" else make
    plain, other = (next(iter(make(color_jitter=strength).train_dataloader())) for strength in (0.0, 0.5))
    assert torch.equal(other.targets, plain.targets)
    assert other.images.shape == plain.images.shape
    assert other.images.min() >= 0
    assert other.images.max() <= 1
    brighter = other.images.mean((1, 2, 3)) / plain.images.mean((1, 2, 3))
    assert brighter.std() > 0.02  # no two alike
    again = next(iter(make(color_jitter=0.5, num_workers=1).train_dataloader()))
    assert torch.equal(again.images, other.images)
    for one, two in zip(make(color_jitter=0.5).val_dataloader(), make().val_dataloader(), strict=True):
        assert torch.equal(one.images, two.images)


def test_jitter_keeps_the_range_of_values_and_leaves_the_global_generator_alone() -> None:
    def first(**options: Any) -> Tensor:
        data = SetDataModule(ClevrScenes(image_size=16, **options), batch_size=4, seed=0, color_jitter=0.4)
        return next(iter(data.train_dataloader())).images

    state = torch.get_rng_state()
    torch.testing.assert_close(first(value_range=(-1.0, 1.0)), 2 * first() - 1, atol=1e-5, rtol=0)
    assert torch.equal(torch.get_rng_state(), state)


def test_factors_of_jitter_stay_within_what_was_asked() -> None:
    grey = torch.full((512, 3, 2, 2), 0.5)  # without contrast or saturation: brightness and channels alone
    jittered_grey = jittered(grey, 0.2, torch.Generator().manual_seed(0))[..., 0, 0] / 0.5
    assert 0.9 * 0.95 <= jittered_grey.min() < 0.88
    assert 1.12 < jittered_grey.max() <= 1.1 * 1.05
    torch.testing.assert_close(jittered(grey, 0.0, torch.Generator()), grey)


@pytest.mark.parametrize("strength", [-0.1, 1.5, float("nan"), "0.2", True])
def test_bad_jitter_is_refused(strength: Any) -> None:
    with pytest.raises(ValueError, match=r"color_jitter must lie in \[0, 1\], where 0 varies nothing"):
        endless(color_jitter=strength)
