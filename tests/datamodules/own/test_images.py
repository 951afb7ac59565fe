import os
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

from unknot.datamodules import FactorDataModule, ImageDataModule, LabelledDataModule, PairDataModule
from unknot.datamodules.own import image_store
from unknot.lightning import pl
from unknot.metrics import evaluate
from unknot.metrics.functional import mig

pytestmark = pytest.mark.usefixtures("empty_cache")


def write(folder: Path, count: int = 20, name: str = "{}.png", size: tuple[int, int] = (12, 10)) -> Path:
    """Images whose red is their number."""
    for number in range(count):
        path = folder / name.format(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", size, (number, 0, 0)).save(path)
    return folder


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return write(tmp_path / "photos")


def module(source: Any, **options: Any) -> ImageDataModule:
    return ImageDataModule(source, **{"image_size": 8, "batch_size": 5, "seed": 0} | options)


def numbers(batch: Tensor) -> list[int]:
    return (batch[:, 0, 0, 0] * 255).round().long().tolist()


def training(data: ImageDataModule, epochs: int = 3) -> list[int]:
    loader = data.train_dataloader()
    return [number for _ in range(epochs) for batch in loader for number in numbers(batch)]


def validation(data: ImageDataModule) -> list[int]:
    return [number for batch in data.val_dataloader() for number in numbers(batch)]


def stack(count: int = 20) -> Tensor:
    """uint8 ``[N, 3, 8, 8]``; the red of every image is its number."""
    tensor = torch.zeros(count, 3, 8, 8, dtype=torch.uint8)
    tensor[:, 0] = torch.arange(count)[:, None, None]
    return tensor


SOURCES: dict[str, Callable[[Path], Any]] = {
    "folder": lambda tmp_path: write(tmp_path / "photos"),
    "text": lambda tmp_path: str(write(tmp_path / "photos")),
    "tree": lambda tmp_path: write(tmp_path / "photos", name="a{}/deep/x.png"),
    "files": lambda tmp_path: sorted(write(tmp_path / "photos").iterdir()),
    "tensor": lambda _: stack(),
    "array": lambda _: stack().numpy(),
    "channels last": lambda _: stack().permute(0, 2, 3, 1).numpy(),
    "floats": lambda _: stack() / 255,
    "Pillow": lambda _: [Image.fromarray(image.permute(1, 2, 0).numpy()) for image in stack()],
    "data set of tensors": lambda _: torch.utils.data.TensorDataset(stack(), torch.arange(20)),
    "data set of Pillow images": lambda tmp_path: ImageFolder(write(tmp_path / "photos", name="a/{:02}.png")),
    "npy": lambda tmp_path: np.save(tmp_path / "x.npy", stack().numpy()) or tmp_path / "x.npy",
}


@pytest.mark.parametrize("make", SOURCES.values(), ids=SOURCES.keys())
def test_all_images_are_drawn_and_none_on_both_sides(tmp_path: Path, make: Callable[[Path], Any]) -> None:
    data = module(make(tmp_path), val_fraction=0.25)
    data.prepare_data()
    batch = next(iter(data.train_dataloader()))
    assert batch.shape == (5, 3, 8, 8)
    assert batch.dtype == torch.float32
    assert data.image_shape == (3, 8, 8)
    train, held_out = training(data, epochs=1), validation(data)
    assert sorted(train + held_out) == list(range(20))
    assert len(held_out) == 5


def test_a_folder_is_decoded_once(photos: Path, empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = training(module(photos))
    (file,) = empty_cache.glob("*.npy")
    monkeypatch.setattr(image_store, "read_image", lambda *_, **__: pytest.fail("decoded again"))
    assert training(module(str(photos))) == first
    assert list(empty_cache.glob("*.npy")) == [file]


def test_a_changed_file_is_decoded_again(photos: Path) -> None:
    module(photos).prepare_data()
    Image.new("RGB", (12, 10), (99, 0, 0)).save(photos / "3.png")
    everything = module(photos).pictures.take(torch.arange(20))
    assert numbers(everything) == [0, 1, 2, 99, *range(4, 20)]


def test_files_are_in_natural_order(tmp_path: Path) -> None:
    data = module(write(tmp_path / "photos", 12, "b{}/img.png"))
    assert numbers(data.pictures.take(torch.arange(12))) == list(range(12))
    assert data.pictures.names[2] == "b2/img.png"


def test_hidden_and_other_files_are_passed_over(photos: Path) -> None:
    (photos / "notes.txt").write_text("no image")
    write(photos / ".thumbnails", 3)
    (photos / "._1.png").write_bytes(b"what macOS leaves behind")
    assert len(module(photos).pictures) == 20


# Reading.


def gradient(height: int, width: int) -> Image.Image:
    """Red by row, green by column."""
    pixels = np.zeros((height, width, 3), dtype=np.uint8)
    pixels[..., 0] = np.arange(height)[:, None]
    pixels[..., 1] = np.arange(width)
    return Image.fromarray(pixels)


@pytest.mark.parametrize(
    ("crop", "rows", "columns"),
    [
        ("fit", (2, 197), (52, 147)),  # all of the height, as twice as high as wide is wanted
        ("none", (2, 197), (2, 197)),
        ((100, 50), (51, 149), (75, 124)),
    ],
)
def test_what_is_cropped(tmp_path: Path, crop: Any, rows: tuple[int, int], columns: tuple[int, int]) -> None:
    gradient(200, 200).save(tmp_path / "a.png")
    gradient(200, 200).save(tmp_path / "b.png")
    data = ImageDataModule(tmp_path, image_size=(40, 20), crop=crop)
    image = (255 * data.pictures.take(torch.tensor([0]))[0]).round()
    assert image.shape == (3, 40, 20)
    assert (image[0, 0, 0].item(), image[0, -1, 0].item()) == pytest.approx(rows, abs=4)
    assert (image[1, 0, 0].item(), image[1, 0, -1].item()) == pytest.approx(columns, abs=4)


@pytest.mark.parametrize("crop", ["fit", "none", (100, 50)])
def test_arrays_are_cropped_and_resized_as_files_are(tmp_path: Path, crop: Any) -> None:
    picture = gradient(200, 180)
    picture.save(tmp_path / "a.png")
    picture.save(tmp_path / "b.png")
    files = ImageDataModule(tmp_path, image_size=(40, 20), crop=crop).pictures.take(torch.tensor([0]))
    for array in (np.stack([np.asarray(picture)] * 2), np.stack([np.asarray(picture)] * 2).astype(np.float32) / 255):
        same = ImageDataModule(array, image_size=(40, 20), crop=crop).pictures.take(torch.tensor([0]))
        assert same.shape == (1, 3, 40, 20)
        assert (same - files).abs().max() < 2.5 / 255


def test_arrays_keep_their_size_unless_asked() -> None:
    assert ImageDataModule(torch.rand(5, 1, 30, 20)).image_shape == (1, 30, 20)
    assert ImageDataModule(torch.rand(5, 3, 30, 20), grayscale=True).image_shape == (1, 30, 20)
    assert ImageDataModule(torch.rand(5, 3, 30, 20), crop=(10, 12)).image_shape == (3, 10, 12)


def test_photographs_stand_upright(tmp_path: Path) -> None:
    picture = Image.new("RGB", (60, 40), (0, 0, 0))
    picture.paste((255, 255, 255), (0, 0, 60, 20))  # white above
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter
    for name in "ab":
        picture.save(tmp_path / f"{name}.jpg", exif=exif, quality=95)
    image = ImageDataModule(tmp_path, image_size=16).pictures.take(torch.tensor([0]))[0]
    assert image[:, :, 12:].mean() > 0.95  # white on the right
    assert image[:, :, :4].mean() < 0.05


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK", "I;16"])
def test_kinds_of_images(tmp_path: Path, mode: str) -> None:
    grey = Image.new("RGB", (10, 10), (128, 128, 128))
    if mode == "I;16":
        picture = Image.fromarray(np.full((10, 10), 128 << 8, dtype=np.uint16))
    else:
        picture = grey.quantize(4) if mode == "P" else grey.convert(mode, dither=Image.Dither.NONE)
    assert picture.mode == mode
    suffix = "tif" if mode in ("CMYK", "I;16") else "png"
    for name in "ab":
        picture.save(tmp_path / f"{name}.{suffix}")
    data = ImageDataModule(tmp_path, image_size=4)
    value = data.pictures.take(torch.tensor([0])).unique() * 255
    assert value.tolist() == [255.0] if mode == "1" else value.mean().item() == pytest.approx(128, abs=3)
    assert ImageDataModule(tmp_path, image_size=4, grayscale=True).image_shape == (1, 4, 4)


def test_large_photographs_decode_as_small_ones(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    picture = Image.fromarray(rng.integers(256, size=(6, 8, 3), dtype=np.uint8)).resize((1600, 1200))
    for suffix in ("png", "jpg"):
        picture.save(tmp_path / f"x.{suffix}", quality=95)
    jpg, png = ImageDataModule(tmp_path, image_size=32).pictures.take(torch.arange(2))
    assert (jpg - png).abs().mean() < 0.02


# Unreadable files.


@pytest.fixture
def damaged(photos: Path) -> Path:
    os.truncate(photos / "3.png", 40)
    (photos / "7.png").write_bytes(b"<html>404</html>")
    (photos / "11.png").write_bytes(b"")
    return photos


def test_unreadable_files_are_all_named(damaged: Path, empty_cache: Path) -> None:
    with pytest.raises(ValueError, match="Cannot read 3 of 20 files") as caught:
        module(damaged).prepare_data()
    message = str(caught.value)
    assert all(f"{damaged / name} (" in message for name in ("3.png", "7.png", "11.png"))
    assert "unreadable='skip'" in message
    assert "\n" not in message
    assert [path for path in empty_cache.iterdir() if path.is_file()] == []


def test_unreadable_files_can_be_skipped(damaged: Path) -> None:
    for _ in range(2):  # the second time from the cache
        data = module(damaged, unreadable="skip")
        with pytest.warns(UserWarning, match=r"Left out 3 of 20 files: .*3.png .*7.png .*11.png"):
            data.prepare_data()
        assert sorted(set(training(data)) | set(validation(data))) == sorted(set(range(20)) - {3, 7, 11})
    with pytest.raises(ValueError, match="Cannot read 3 of 20 files"):
        module(damaged).prepare_data()


def test_a_listed_file_that_is_not_there_is_named(photos: Path) -> None:
    files = [photos / "1.png", photos / "2.png", photos / "nowhere.png"]
    with pytest.raises(ValueError, match=r"1 of 3 files: .*nowhere.png \(.*No such file"):
        module(files).prepare_data()
    with pytest.warns(UserWarning, match="nowhere.png"):
        assert len(module(files, unreadable="skip").pictures) == 2


@pytest.mark.parametrize(
    ("source", "options", "reason"),
    [
        ("nowhere", {}, "nowhere: no such folder"),
        ("empty", {}, "no images here or below"),
        ([], {}, "empty list"),
        (["photos/1.png"], {}, "1 readable images; at least two"),
        ("broken.npy", {}, "broken.npy: not a readable .npy file"),
        (torch.ones(5, 7, 7), {}, "shape .5, 7, 7."),
        (torch.ones(5, 3, 7, 7) * 255, {}, "divide by 255"),
        ("photos", {"image_size": 0}, "image_size must be a positive whole number"),
        ("photos", {"image_size": (8, 8.5)}, "image_size must be"),
        ("photos", {"crop": "middle"}, "crop must be 'fit', 'none' or a positive"),
        ("photos", {"crop": (11, 3)}, "12 x 10 pixels, too small to crop 3 x 11"),
        (torch.ones(5, 3, 7, 7), {"crop": (8, 3)}, "7 x 7 are too small to crop 8 x 3"),
        ("photos", {"val_fraction": 0}, "val_fraction must lie between 0 and 1"),
        ("photos", {"unreadable": "ignore"}, "unreadable must be 'error' or 'skip'"),
        ("photos", {"num_bins": 1}, "num_bins must be a whole number of at least 2"),
    ],
    ids=lambda value: f"tensor{list(value.shape)}" if isinstance(value, torch.Tensor) else str(value),
)
def test_mistakes_are_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: Any, options: dict[str, Any], reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "photos")
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.npy").write_bytes(b"no array")
    with pytest.raises((ValueError, FileNotFoundError), match=reason) as caught:
        ImageDataModule(source, **options).prepare_data()
    assert "\n" not in str(caught.value)


# The stream.


def trainer(rank: int = 0, ranks: int = 1, **options: Any) -> pl.Trainer:
    class OfRank(pl.Trainer):
        @property
        def global_rank(self) -> int:
            return rank

        @property
        def world_size(self) -> int:
            return ranks

    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    return OfRank(accelerator="cpu", **quiet | {"enable_checkpointing": False} | options)


class Recorder(pl.LightningModule):
    """Keeps the numbers of the images it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.trained: list[int] = []

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        self.trained += numbers(batch)
        return self.weight * batch.mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters())


def test_the_seed_sets_the_stream_but_not_the_split(photos: Path) -> None:
    first, second = module(photos), module(photos, seed=1)
    assert training(first) == training(module(photos)) != training(second)
    assert validation(first) == validation(second)


@pytest.mark.parametrize("source", ["folder", "tensor"])
def test_the_number_of_workers_does_not_matter(photos: Path, source: str) -> None:
    images = photos if source == "folder" else stack()
    alone, together = module(images), module(images, num_workers=2)
    assert training(together, 5) == training(alone, 5)
    assert validation(together) == validation(alone)


@pytest.mark.parametrize(("ranks", "batch_size"), [(2, 5), (3, 5), (3, 1), (4, 8), (2, 50)])
def test_ranks_share_an_epoch(photos: Path, ranks: int, batch_size: int) -> None:
    train, held_out, lengths = [], [], set()
    for rank in range(ranks):
        data = module(photos, batch_size=batch_size, val_fraction=0.15)
        data.trainer = trainer(rank, ranks)
        train += [training(data, epochs=1)]
        held_out += [validation(data)]
        lengths.add((len(train[-1]), len(data.train_dataloader()), len(data.val_dataloader())))
    assert len(lengths) == 1  # or ranks would wait for each other for ever
    everything = [number for part in train for number in part]
    assert len(everything) < 17 + ranks  # no more than to go round
    assert len(set(everything)) == 17
    assert all(held_out)
    assert {*everything} | {number for part in held_out for number in part} == set(range(20))


def test_fewer_held_out_images_than_ranks_are_seen_by_all(photos: Path) -> None:
    for rank in range(3):
        data = module(photos, val_fraction=0.01)
        data.trainer = trainer(rank, 3)
        assert len(validation(data)) == 1


def test_every_epoch_has_every_image_once_in_a_new_order(photos: Path) -> None:
    loader = module(photos, batch_size=4).train_dataloader()
    epochs = [[number for batch in loader for number in numbers(batch)] for _ in range(3)]
    assert len(loader) == 5
    assert all(len(epoch) == len(set(epoch)) == 18 for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]
    assert len(module(photos, batch_size=4, drop_last=True).train_dataloader()) == 4


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("steps", [3, 4, 6])  # in the middle of an epoch, at its end, in the next
def test_a_resumed_run_goes_on_where_it_stopped(photos: Path, tmp_path: Path, steps: int, num_workers: int) -> None:
    shift = v2.Lambda(lambda image: image + (torch.rand(()) < 0.5) / 2)
    saving = pl.callbacks.ModelCheckpoint(tmp_path, "{step}", every_n_train_steps=1, save_top_k=-1)
    options = {"max_epochs": 3, "limit_val_batches": 0}
    whole, resumed = Recorder(), Recorder()
    first = trainer(**options, enable_checkpointing=True, callbacks=saving)
    first.fit(whole, datamodule=module(photos, seed=5, transform=shift))
    again = module(photos, seed=None, num_workers=num_workers, transform=shift)
    trainer(**options).fit(resumed, datamodule=again, ckpt_path=tmp_path / f"step={steps}.ckpt")
    batches = [5, 5, 5, 3] * 3
    assert len(whole.trained) == sum(batches)
    assert resumed.trained == whole.trained[sum(batches[:steps]) :]
    assert max(whole.trained) > 100 > min(whole.trained)


def test_transforms_are_seeded_by_the_batch_and_leave_the_global_generators_alone(photos: Path) -> None:
    import random

    def jitter(image: Tensor) -> Tensor:
        return image * torch.rand(()) * np.random.rand() * random.random()  # noqa: NPY002

    states = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # noqa: NPY002
    first = torch.cat(list(module(photos, transform=jitter).train_dataloader()))
    after = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # noqa: NPY002
    assert torch.equal(states[0], after[0])
    assert states[1:] == after[1:]
    assert torch.equal(torch.cat(list(module(photos, transform=jitter).train_dataloader())), first)
    assert torch.equal(torch.cat(list(module(photos, transform=jitter, num_workers=2).train_dataloader())), first)
    assert not torch.equal(torch.cat(list(module(photos, transform=jitter, seed=1).train_dataloader())), first)
    held_out = module(photos, transform=jitter)
    assert torch.equal(torch.cat(list(held_out.val_dataloader())), torch.cat(list(module(photos).val_dataloader())))


def test_the_shape_follows_the_transform(photos: Path) -> None:
    data = module(photos, image_size=32, transform=v2.RandomCrop(24), val_transform=v2.CenterCrop(24))
    assert data.image_shape == (3, 24, 24)
    assert next(iter(data.train_dataloader())).shape == (5, 3, 24, 24)
    assert next(iter(data.val_dataloader())).shape == (2, 3, 24, 24)


def test_setup_works_without_a_trainer(photos: Path) -> None:
    torch.manual_seed(3)
    data = module(photos, seed=None)
    data.prepare_data()
    data.setup("fit")
    first = training(data)
    assert first == training(module(photos, seed=3))
    torch.manual_seed(4)
    other = module(photos, seed=None)
    other.setup()
    assert training(other) != first


def test_a_module_in_use_travels_light(photos: Path) -> None:
    data = module(photos)
    first = training(data)
    pickled = pickle.dumps(data)
    assert len(pickled) < 10_000
    assert training(pickle.loads(pickled)) == first


# Labels.


def table(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def colours(count: int = 20) -> str:
    """Red alternates, size is of three kinds, and weight is a fraction."""
    rows = [f"{n}.png,{['blue', 'amber'][n % 2]},{n % 3 + 10},{n / 7:.3f}" for n in reversed(range(count))]
    return "\n".join(["file,colour,size,weight", *rows])


def test_a_table_gives_classes_in_the_order_of_the_images(photos: Path, tmp_path: Path) -> None:
    data = module(photos, labels=table(tmp_path / "factors.csv", colours()), num_bins=5)
    assert data.table.names == ("colour", "size", "weight")
    assert data.table.values[:2] == (("amber", "blue"), ("10", "11", "12"))
    assert data.table.sizes == (2, 3, 5)
    factors = data.table.factors
    n = torch.arange(20)
    assert torch.equal(factors[:, 0], 1 - n % 2)
    assert torch.equal(factors[:, 1], n % 3)
    assert torch.equal(factors[:, 2], (n * 5 / 19).long().clamp(max=4))  # bins of equal width
    assert data.table.values[2][0] == "0 to 0.5428"


def test_numbers_sort_as_numbers_and_few_fractions_are_classes(photos: Path, tmp_path: Path) -> None:
    rows = "\n".join(f"{n}.png,{[100, 9, 20][n % 3]},{[0.5, 0.25][n % 2]}" for n in range(20))
    data = module(photos, labels=table(tmp_path / "factors.csv", f"file,size,share\n{rows}"))
    assert data.table.values == (("9", "20", "100"), ("0.25", "0.5"))
    assert data.table.factors[:3].tolist() == [[2, 1], [0, 0], [1, 1]]


def test_columns_can_be_chosen(photos: Path, tmp_path: Path) -> None:
    data = module(photos, labels=table(tmp_path / "factors.csv", colours()), label_keys=["size", "colour"])
    assert data.table.names == ("size", "colour")
    assert data.table.factors[4].tolist() == [1, 1]


def test_arrays_take_tables_by_row_and_integer_arrays(tmp_path: Path) -> None:
    text = "\n".join(["colour", *(["red", "green"][n % 2] for n in range(20))])
    by_row = module(stack(), labels=table(tmp_path / "factors.csv", text))
    assert by_row.table.factors[:, 0].tolist() == [1, 0] * 10
    classes = np.stack([np.arange(20) % 2 + 5, np.arange(20) // 10], axis=1)
    by_array = module(stack(), labels=classes)
    assert by_array.table.factors.tolist() == (classes - [5, 0]).tolist()
    assert by_array.table.values == (("5", "6"), ("0", "1"))


def test_observational_metrics_work_on_ones_own_data(photos: Path, tmp_path: Path) -> None:
    rows = "\n".join(f"{n}.png,{n % 2},{n // 5}" for n in range(20))
    data = module(photos, labels=table(tmp_path / "factors.csv", f"file,parity,quarter\n{rows}"))

    def represent(images: Tensor) -> Tensor:
        number = (images[:, 0, 0, 0] * 255).round()
        return torch.stack([number % 2, number // 5], dim=1)

    codes, factors = data.codes(represent)
    assert codes.shape == factors.shape == (20, 2)
    assert mig(codes, factors) > 0.95  # with 20 images the factors are not quite independent
    trained_on = mig(*data.codes(represent, "train"))  # which no held-out image changes
    assert evaluate(represent, data, metrics=["mig"])["mig"] == pytest.approx(trained_on)

    train, held_out = data.codes(represent, "train"), data.codes(represent, "val")
    assert len(train[0]) + len(held_out[0]) == 20
    assert len(held_out[0]) == 2
    for codes, factors in (train, held_out):
        assert torch.equal(codes.long(), factors)


@pytest.mark.parametrize("metric", ["mig", "dci", "sap", "modularity", "explicitness", "irs"])
def test_observational_metrics_do_not_mind_an_incomplete_grid(metric: str) -> None:
    generator = torch.Generator().manual_seed(0)
    factors = torch.randint(3, (200, 2), generator=generator)
    factors = factors[factors.sum(1) < 4]  # one of nine combinations is missing
    values = torch.zeros(len(factors), 1, 2, 2)
    values[:, 0] = factors[:, :, None] / 2
    data = ImageDataModule(values, labels=factors)
    scores = evaluate(lambda x: x[:, 0, :, 0], data.ground_truth(), metrics=[metric], num_train=300, num_test=100)
    assert all(0 < score <= 1.0001 for score in scores.values())


def test_models_represent_in_evaluation_mode(photos: Path) -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 2)
            self.modes: list[bool] = []

        def represent(self, images: Tensor) -> Tensor:
            self.modes.append(self.training)
            return self.layer(images[:, :1, 0, 0])

    model = Model()
    codes, _ = module(photos, labels=torch.arange(20)[:, None]).codes(model)
    assert codes.shape == (20, 2)
    assert not codes.requires_grad
    assert model.modes == [False]
    assert model.training


def test_other_modules_take_ones_own_labelled_images(photos: Path) -> None:
    labels = torch.stack([torch.arange(20) % 2, torch.arange(20) % 5], dim=1)  # all ten combinations occur
    dataset = module(photos, labels=labels).ground_truth("train")
    assert len(dataset) == 18
    image, factors = dataset[3]
    assert torch.equal(factors, labels[numbers(image[None])[0]])
    batch = next(iter(FactorDataModule(dataset, batch_size=100, seed=0).train_dataloader()))
    assert len(set(numbers(batch))) == 18
    complete = module(photos, labels=labels).ground_truth()
    first, second = next(iter(PairDataModule(complete, k=1, batch_size=100, seed=0).train_dataloader()))
    changed = labels[numbers(first)] != labels[numbers(second)]
    assert changed.sum(1).max() == 1
    _, labelled, targets = next(iter(LabelledDataModule(dataset, num_labels=50, batch_size=30).train_dataloader()))
    assert torch.allclose(targets * torch.tensor([2, 5]), labels[numbers(labelled)].float())


def test_a_combination_that_was_never_seen_is_said(photos: Path, tmp_path: Path) -> None:
    rows = "\n".join(f"{n}.png,{'ab'[n % 2]},{'cd'[n % 2]}" for n in range(20))
    dataset = module(photos, labels=table(tmp_path / "factors.csv", f"file,one,two\n{rows}")).ground_truth()
    assert dataset.factor_space.sample(100).sum(1).unique().tolist() == [0, 2]
    with pytest.raises(ValueError, match=r"no image with one = a, two = d\. Scores that choose their own factors"):
        dataset.observe(torch.tensor([[0, 0], [0, 1]]))


def test_without_labels_it_is_said(photos: Path) -> None:
    with pytest.raises(ValueError, match=r"no labels\. Give ImageDataModule a table"):
        module(photos).codes(lambda x: x)


BAD_TABLES: dict[str, tuple[str, str]] = {
    "empty": ("", "not a CSV table with a header"),
    "one column": ("file\n0.png", "no columns of factors"),
    "ragged": ("file,a\n0.png,1,2", "row 2 has 3 cells, the header 2"),
    "same names": ("file,a,a\n0.png,1,2", "two columns of the same name"),
    "other images": (colours().replace(".png", ".jpg"), "no row for any of 20 images, such as 0.png"),
    "nothing in it": ("file,a\n0.png,\n1.png, ", "every row is empty"),
    "absent image": (colours(21), "1 of its rows name images that are not there: 20.png"),
    "twice": (colours() + "\n3.png,blue,1,1", "two rows for 3.png"),
    "empty column": ("file,a,b\n0.png,1,\n1.png,2,", "column 'b' is empty"),
    "infinity": (colours().replace(",10,", ",inf,", 1), "labels of column 'size' must be finite"),
}


@pytest.mark.parametrize(("text", "reason"), BAD_TABLES.values(), ids=BAD_TABLES.keys())
def test_bad_tables_are_explained(photos: Path, tmp_path: Path, text: str, reason: str) -> None:
    path = table(tmp_path / "factors.csv", text)
    with pytest.raises(ValueError, match=reason) as caught:
        _ = module(photos, labels=path).table
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_some_images_may_have_no_labels(photos: Path, tmp_path: Path) -> None:
    lines = colours().splitlines()
    some = "\n".join([*lines[:9], lines[-1], f"{lines[9].partition(',')[0]},,,"])  # nine, and a row without a value
    data = module(photos, labels=table(tmp_path / "factors.csv", some), batch_size=18, with_factors=True)
    assert int(data.table.labelled.sum()) == 9
    images, factors = next(iter(data.train_dataloader()))
    assert images.shape[0] == len(factors) == 18
    known = {number for number in range(20) if data.table.labelled[number]}
    assert {n for n, row in zip(numbers(images), factors, strict=True) if (row >= 0).all()} == known & set(
        numbers(images)
    )
    codes, rows = data.codes(lambda images: images[:, :, 0, 0])
    assert len(codes) == len(rows) == len(data.ground_truth()) == 9
    assert set((codes[:, 0] * 255).round().long().tolist()) == known
    whole = module(stack(), labels=torch.where(torch.arange(20) % 2 == 0, 5, -1)[:, None])
    assert int(whole.table.labelled.sum()) == 10
    with pytest.raises(ValueError, match="labels are all -1"):
        _ = module(stack(), labels=torch.full((20, 2), -1)).table


def test_batches_for_semi_supervised_models() -> None:
    labels = torch.stack([torch.arange(20) // 4, torch.arange(20) % 2], dim=1)
    labels[::2] = -1
    data = module(stack(), labels=labels, with_labels=True, val_fraction=0.3)
    for loader, split in ((data.train_dataloader(), "train"), (data.val_dataloader(), "val")):
        for images, labelled, targets in loader:
            assert len(images) == len(labelled) == len(targets)
            seen = numbers(labelled)
            assert all(number % 2 for number in seen)
            assert {*seen, *numbers(images)} <= set(data.indices(split).tolist())
            assert targets[:, 0].tolist() == pytest.approx([(number // 4) / 5 for number in seen])
    with pytest.raises(ValueError, match="These images have no labels"):
        module(stack(), with_labels=True)
    with pytest.raises(ValueError, match="not both"):
        module(stack(), labels=labels, with_labels=True, with_factors=True)


def test_labelled_images_are_parted_into_some_to_fit_on_and_others_to_test(photos: Path, tmp_path: Path) -> None:
    dataset = module(photos, labels=table(tmp_path / "factors.csv", colours())).ground_truth()
    fit, test = dataset.split(test_fraction=0.25)
    ours, theirs = (set(numbers(part[:][0])) for part in (fit, test))
    assert (len(ours), len(theirs)) == (15, 5)
    assert ours | theirs == set(range(20))
    assert fit.factor_space.sizes == dataset.factor_space.sizes
    assert set(numbers(dataset.split(0.25, seed=1)[1][:][0])) != theirs


def test_more_bad_labels_are_explained(photos: Path, tmp_path: Path) -> None:
    path = table(tmp_path / "factors.csv", colours())
    with pytest.raises(FileNotFoundError, match=r"nowhere\.csv: no such file"):
        _ = module(photos, labels=tmp_path / "nowhere.csv").table
    with pytest.raises(ValueError, match="no column 'hue'; there are colour, size, weight"):
        _ = module(photos, labels=path, label_keys=["hue"]).table
    with pytest.raises(ValueError, match="20 rows for 5 images"):
        _ = module(stack(5), labels=path).table
    with pytest.raises(ValueError, match=r"an array \[20, F\], a row for every image, got Tensor of shape \[19, 1\]"):
        module(stack(), labels=torch.rand(19, 1))
    with pytest.raises(ValueError, match="2 names in label_keys for 1 columns"):
        _ = module(stack(), labels=torch.zeros(20, 1, dtype=torch.long), label_keys=["a", "b"]).table
    with pytest.raises(ValueError, match="split must be one of train, val, all, got 'test'"):
        module(photos).indices("test")  # type: ignore[arg-type]


def test_skipped_files_may_stay_in_the_table(damaged: Path, tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        data = module(damaged, labels=table(tmp_path / "factors.csv", colours(21)), unreadable="skip")
        factors = data.table.factors
    assert any("not there: 20.png" in str(warning.message) for warning in caught)
    assert not any("11.png" in str(warning.message) for warning in caught if "not there" in str(warning.message))
    assert torch.equal(factors[:, 1], torch.tensor([n for n in range(20) if n not in (3, 7, 11)]) % 3)
    by_array = module(damaged, labels=torch.arange(20)[:, None], unreadable="skip")
    with pytest.warns(UserWarning, match="Left out"):
        by_array.prepare_data()
    assert by_array.table.values[0] == tuple(str(n) for n in range(20) if n not in (3, 7, 11))


def test_a_data_set_whose_images_differ_is_told_of_image_size() -> None:
    images = [torch.rand(1, 16 + number % 2, 16) for number in range(10)]
    with pytest.raises(ValueError, match=r"of shape \[1, 16, 16\] and of \[1, 17, 16\]; give image_size"):
        next(iter(ImageDataModule(Listed(images), batch_size=8).train_dataloader()))
    assert next(iter(ImageDataModule(Listed(images), 16, batch_size=8).train_dataloader())).shape == (8, 1, 16, 16)


class Listed(Dataset[torch.Tensor]):
    """A data set of torch."""

    def __init__(self, images: list[torch.Tensor]) -> None:
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, number: int) -> torch.Tensor:
        return self.images[number]
