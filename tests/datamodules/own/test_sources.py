"""Images from files that other libraries wrote: each is trained on, held out, resumed, labelled and scored."""

import copy
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

from unknot.datamodules import (
    ClevrScenes,
    DSprites,
    FramePairDataModule,
    HDF5Scenes,
    ImageDataModule,
    ScenePairDataModule,
    WalkDataModule,
)
from unknot.datamodules.own import image_store, streams
from unknot.lightning import pl
from unknot.metrics import evaluate

pd = pytest.importorskip("pandas")
datasets: Any = None
wds: Any = None

pytestmark = pytest.mark.usefixtures("empty_cache")
COUNT = 30


@pytest.fixture(scope="module", autouse=True)
def libraries() -> None:
    """Import what is slow to import when the tests run, not when they are collected."""
    global datasets, wds
    datasets, wds = pytest.importorskip("datasets"), pytest.importorskip("webdataset")


def picture(number: int) -> Image.Image:
    """Red is the number, green its parity, blue its remainder by three."""
    return Image.new("RGB", (12, 10), (number, number % 2 * 255, number % 3 * 100))


def encoded(number: int, suffix: str = "png") -> bytes:
    buffer = io.BytesIO()
    picture(number).save(buffer, suffix)
    return buffer.getvalue()


def folder(path: Path) -> Path:
    path.mkdir()
    for number in range(COUNT):
        picture(number).save(path / f"{number:02}.png")
    return path


def hugging_face(count: int = COUNT, start: int = 0) -> Any:
    features = {"img": datasets.Image(), "parity": datasets.ClassLabel(names=["even", "odd"])}
    rows = range(start, start + count)
    cells = {"img": [picture(n) for n in rows], "parity": [n % 2 for n in rows], "third": [n % 3 for n in rows]}
    return datasets.Dataset.from_dict(
        cells | {"caption": [f"number {n}" for n in rows]},
        features=datasets.Features(features | {"third": datasets.Value("int64"), "caption": datasets.Value("string")}),
    )


def shards(path: Path) -> list[Path]:
    path.mkdir()
    with wds.ShardWriter(str(path / "shard-%02d.tar"), maxcount=12, verbose=0) as sink:
        for n in range(COUNT):
            sink.write({"__key__": f"{n:04}", "png": picture(n), "json": {"parity": n % 2, "third": n % 3}})
    return sorted(path.iterdir())


def parquet(path: Path) -> Path:
    hugging_face().to_parquet(path)
    return path


def frame_of_paths(path: Path) -> Any:
    files = sorted(folder(path).iterdir())
    return pd.DataFrame(
        {"file": map(str, files), "parity": [n % 2 for n in range(COUNT)], "third": [n % 3 for n in range(COUNT)]}
    )


def csv_of_paths(path: Path) -> Path:
    frame = frame_of_paths(path)
    frame["file"] = [f"photos/{Path(name).name}" for name in frame["file"]]
    frame.to_csv(path.parent / "table.csv", index=False)
    return path.parent / "table.csv"


def saved(path: Path) -> Path:
    np.save(path, SOURCES["array"](path))
    return path


class Dictionaries(Dataset[Any]):
    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, number: int) -> dict[str, Any]:
        return {"image": picture(number), "parity": number % 2, "third": torch.tensor(number % 3), "name": str(number)}


class Tuples(Dictionaries):
    def __getitem__(self, number: int) -> Any:
        return picture(number), np.array([number % 2, number % 3])


SOURCES: dict[str, Callable[[Path], Any]] = {
    "folder": lambda tmp: folder(tmp / "photos"),
    "list of files": lambda tmp: sorted(folder(tmp / "photos").iterdir()),
    "array": lambda _: np.stack([np.asarray(picture(n)) for n in range(COUNT)]),
    "npy": lambda tmp: saved(tmp / "images.npy"),
    "list of Pillow images": lambda _: [picture(n) for n in range(COUNT)],
    "column": lambda _: hugging_face()["img"],
    "DataFrame": lambda tmp: frame_of_paths(tmp / "photos"),
    "DataFrame of bytes": lambda _: pd.DataFrame(
        {
            "image": [encoded(n) for n in range(COUNT)],
            "parity": [n % 2 for n in range(COUNT)],
            "third": [n % 3 for n in range(COUNT)],
        }
    ),
    "CSV": lambda tmp: csv_of_paths(tmp / "photos"),
    "tuples": lambda _: Tuples(),
    "dictionaries": lambda _: Dictionaries(),
    "Dataset": lambda _: hugging_face(),
    "torch format": lambda _: hugging_face().with_format("torch"),
    "DatasetDict": lambda _: datasets.DatasetDict(train=hugging_face(25), validation=hugging_face(5, 25)),
    "parquet": lambda tmp: parquet(tmp / "train.parquet"),
    "folder of parquet": lambda tmp: (tmp / "data").mkdir() or parquet(tmp / "data" / "a.parquet").parent,
    "webdataset": lambda tmp: shards(tmp / "shards"),
    "folder of shards": lambda tmp: shards(tmp / "shards")[0].parent,
}
BY_NAME, BY_ROW = {"folder", "list of files"}, {"array", "npy", "list of Pillow images", "column"}
"""Sources without labels of their own; the images of the first have names."""
STREAMS: dict[str, Callable[[Path], Any]] = {
    "IterableDataset": lambda _: hugging_face().to_iterable_dataset(num_shards=3),
    "IterableDatasetDict": lambda _: datasets.IterableDatasetDict(
        train=hugging_face(25).to_iterable_dataset(), test=hugging_face(5, 25).to_iterable_dataset()
    ),
    "parquet stream": lambda tmp: datasets.load_dataset(
        "parquet", data_files=str(parquet(tmp / "a.parquet")), split="train", streaming=True, cache_dir=str(tmp)
    ),
    "webdataset pipeline": lambda tmp: wds.WebDataset(
        [str(path) for path in shards(tmp / "shards")], shardshuffle=False, empty_check=False
    ),
    "torch iterable": lambda _: Numbered(),
}


class Numbered(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return ((picture(number), number) for number in range(COUNT))


def module(source: Any, **options: Any) -> ImageDataModule:
    return ImageDataModule(source, **{"image_size": 8, "batch_size": 4, "seed": 0} | options)


def numbers(batch: Tensor) -> list[int]:
    return (batch[:, 0, 0, 0] * 255).round().long().tolist()


class Recorder(pl.LightningModule):
    """Keeps the images it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.trained: list[Tensor] = []

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        self.trained.append(batch)
        return self.weight * batch.mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters())


def fit(data: ImageDataModule, folder: Path | None = None, resume: Path | None = None) -> list[Tensor]:
    """14 batches, in the third pass through the data; a checkpoint after the ninth."""
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "limit_val_batches": 0}
    saving = [pl.callbacks.ModelCheckpoint(folder, "{step}", every_n_train_steps=9, save_top_k=-1)] if folder else []
    run = pl.Trainer(
        accelerator="cpu", max_steps=14, max_epochs=-1, callbacks=saving, enable_checkpointing=bool(folder), **quiet
    )
    model = Recorder()
    run.fit(model, datamodule=data, ckpt_path=resume)
    return model.trained


def represent(images: Tensor) -> Tensor:
    return images[:, 1:, 0, 0]


@pytest.mark.parametrize("kind", SOURCES)
def test_every_source_trains_validates_resumes_and_is_scored(tmp_path: Path, kind: str) -> None:
    source = SOURCES[kind](tmp_path)
    options: dict[str, Any] = {}
    cells = [{"parity": n % 2, "third": n % 3} for n in range(COUNT)]
    if kind in BY_NAME:
        names = [str(path) for path in source] if isinstance(source, list) else [f"{n:02}.png" for n in range(COUNT)]
        options["labels"] = dict(zip(names, cells, strict=True))
    elif kind in BY_ROW:
        options["labels"] = {name: [row[name] for row in cells] for name in cells[0]}
    data = module(source, val_fraction=1 / 6, **options)
    assert str(data).startswith("ImageDataModule(30 images of 3 x 8 x 8; 25 to train on, 5 held out; labels: ")
    data.prepare_data()
    train = sorted(n for batch in data.train_dataloader() for n in numbers(batch))
    held_out = sorted(n for batch in data.val_dataloader() for n in numbers(batch))
    assert sorted(train + held_out) == list(range(COUNT))
    assert len(held_out) == 5
    if type(source).__name__ == "DatasetDict":
        assert held_out == [25, 26, 27, 28, 29]

    whole = fit(module(source, **options), tmp_path / "run")
    rest = fit(module(source, seed=None, **options), resume=tmp_path / "run" / "step=9.ckpt")
    assert len(rest) == 5
    assert all(torch.equal(one, other) for one, other in zip(rest, whole[9:], strict=True))

    codes, factors = data.codes(represent)
    assert torch.equal((codes * torch.tensor([1, 2.55])).round().long(), factors)
    assert evaluate(represent, data, metrics=["mig"])["mig"] > 0.8


@pytest.mark.parametrize("make", STREAMS.values(), ids=STREAMS.keys())
def test_streams_train_validate_and_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], Any]
) -> None:
    monkeypatch.setattr(streams, "BLOCK", 10)
    source = make(tmp_path)
    data = module(source, val_fraction=1 / 6, steps_per_epoch=7)
    assert "stream of images of 3 x 8 x 8" in str(data)
    held_out = [n for batch in data.val_dataloader() for n in numbers(batch)]
    assert held_out == ([25, 26, 27, 28, 29] if isinstance(source, dict) else [0, 6, 12, 18, 24])
    run = fit(data, tmp_path / "run")
    seen = [n for batch in run for n in numbers(batch)]
    assert sorted(seen[:20]) == sorted(set(range(COUNT)) - set(held_out))[:20]
    assert sorted(seen[:50]) == sorted([*(set(range(COUNT)) - set(held_out))] * 2)  # two passes
    assert seen[:20] != sorted(seen[:20])
    rest = fit(
        module(source, seed=None, val_fraction=1 / 6, steps_per_epoch=7), resume=tmp_path / "run" / "step=9.ckpt"
    )
    assert all(torch.equal(one, other) for one, other in zip(rest, run[9:], strict=True))
    far = module(source, val_fraction=1 / 6, steps_per_epoch=7)  # of which nobody knows the length
    share = far._share(0)
    assert numbers(far.train_batch(13, share)) == numbers(run[13])
    with pytest.raises(ValueError, match="labels of a stream are not known in advance"):
        module(source, labels=[0] * COUNT)
    with pytest.raises(ValueError, match="leave out num_workers"):
        module(source, num_workers=1)


def test_a_stream_keeps_its_position_while_a_module_reads_it() -> None:
    source = hugging_face().to_iterable_dataset(num_shards=6)
    reading = iter(source)
    seen = [next(reading)["third"]]
    position = copy.deepcopy(source.state_dict())
    data = module(source)
    data.train_batch(0, data._share(0))
    seen += [row["third"] for row in reading]
    assert seen == [n % 3 for n in range(COUNT)]
    assert source.state_dict() != position


def test_images_are_decoded_once_unless_the_copy_would_be_too_large(
    tmp_path: Path, empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = shards(tmp_path / "shards")
    small = module(source, max_cache_gb=1e-6)
    first = [n for batch in small.train_dataloader() for n in numbers(batch)]
    assert not list(empty_cache.glob("*.npy"))
    large = module(source)
    assert [n for batch in large.train_dataloader() for n in numbers(batch)] == first
    assert large.pictures.disk_size == COUNT * 3 * 8 * 8
    monkeypatch.setattr(image_store, "read_image", lambda *_, **__: pytest.fail("decoded again"))
    assert [n for batch in module(source).train_dataloader() for n in numbers(batch)] == first
    with pytest.raises(ValueError, match=r"30 images take 6 kB, more than max_cache_gb allows, and parquet"):
        module(parquet(tmp_path / "a.parquet"), max_cache_gb=1e-6)


def test_a_data_set_of_the_hub_is_found_with_its_splits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf")
    (tmp_path / "repo").mkdir()
    hugging_face(25).to_parquet(tmp_path / "repo" / "train.parquet")
    hugging_face(5, 25).to_parquet(tmp_path / "repo" / "test.parquet")
    for streaming in (False, True):
        data = ImageDataModule.from_hub(str(tmp_path / "repo"), image_size=8, streaming=streaming)
        assert sorted(n for batch in data.val_dataloader() for n in numbers(batch)) == [25, 26, 27, 28, 29]
    with pytest.raises(ValueError, match="Cannot load the data set") as caught:
        ImageDataModule.from_hub(str(tmp_path / "nowhere" / "x"))
    assert caught.value.__suppress_context__


def test_tables_of_labels(tmp_path: Path) -> None:
    photos = folder(tmp_path / "photos")
    names = [f"{n:02}.png" for n in range(COUNT)]
    frame = pd.DataFrame({"file": names, "colour": ["red", "blue", None] * 10, "weight": [0.5, float("nan"), 2] * 10})
    frame.iloc[::-1].to_parquet(tmp_path / "factors.parquet")
    frame.iloc[::-1].to_csv(tmp_path / "factors.csv", index=False)
    columns = {name: frame[name].tolist() for name in frame.columns}
    by_row = frame[["colour", "weight"]]
    given = (frame, frame.set_index("file"), columns, by_row, tmp_path / "factors.parquet", tmp_path / "factors.csv")
    for labels in given:
        table = module(photos, labels=labels).table
        assert table.names == ("colour", "weight")
        assert table.values == (("blue", "red"), ("0.5", "2"))
        assert table.factors.tolist() == [[1, 0], [0, -1], [-1, 1]] * 10
        assert table.labelled.tolist() == [True, False, False] * 10
    one = module(photos, labels={"03.png": "red", "04.png": "blue"})
    assert one.table.names == ("label",)
    assert one.table.factors[2:6, 0].tolist() == [-1, 1, 0, -1]
    named = module(hugging_face(), label_keys=["parity"], with_factors=True)
    assert named.table.values == (("even", "odd"),)
    assert module(hugging_face(), label_keys=["caption", "third"]).table.sizes == (COUNT, 3)


def bad_inputs(tmp: Path) -> dict[str, tuple[Callable[[], Any], str]]:
    (tmp / "broken.parquet").write_bytes(b"PAR1 and no more")
    (tmp / "broken.tar").write_bytes(b"no archive" * 100)
    (tmp / "notes.txt").write_text("no images")
    pd.DataFrame({"a": [1, 2], "b": [3, 4]}).to_parquet(tmp / "numbers.parquet")
    with wds.TarWriter(str(tmp / "text.tar")) as sink:
        sink.write({"__key__": "0", "txt": "no image"})
    for name, text in {"twice": "file,a,a\nx,1,2\n", "ragged": "file,a\nx\n", "header": "file,a\n", "no": ""}.items():
        (tmp / f"{name}.csv").write_text(text)
    with wds.TarWriter(str(tmp / "half.tar")) as sink:
        sink.write({"__key__": "0", "png": encoded(0)})
        sink.write({"__key__": "1", "txt": "no image"})
    frame = pd.DataFrame({"file": ["a.png", None], "x": [1, 2]})
    data, ragged = hugging_face(), [{"image": picture(0)}, {"image": picture(1)}]
    return {
        "no such parquet": (lambda: tmp / "x.parquet", r"x\.parquet: no such file"),
        "no such tar": (lambda: [tmp / "x.tar"], r"x\.tar: no such file"),
        "broken parquet": (lambda: tmp / "broken.parquet", "not a whole parquet file"),
        "broken tar": (lambda: tmp / "broken.tar", "not a whole uncompressed tar archive"),
        "parquet without images": (lambda: tmp / "numbers.parquet", "which of its columns holds the images"),
        "tar without images": (lambda: tmp / "text.tar", "which of its fields holds the images"),
        "another file": (lambda: tmp / "notes.txt", "not a kind of file that holds images"),
        "wrong key": (lambda: (data, {"image_key": "imag"}), "no 'imag' among its columns. Did you mean 'img'"),
        "a column of numbers": (lambda: (tmp / "numbers.parquet", {"image_key": "a"}), "column 'a' holds int64"),
        "wrong label": (lambda: (data, {"label_keys": ["parit"]}), "No column 'parit' of labels. Did you mean"),
        "no train split": (lambda: datasets.DatasetDict(a=data, b=data), "has the splits a, b, and none is called"),
        "a missing path": (lambda: frame, "column 'file' holds '(nan|None)'; expected paths"),
        "an empty table": (lambda: frame.iloc[:0], "has no rows"),
        "a dictionary": (lambda: {"a": 1}, "images is of type dict; expected"),
        "a number": (lambda: 3, "images is torch.int64 of shape"),
        "dictionaries without one": (lambda: [{"a": 1}, {"a": 2}], "which of its keys holds the images"),
        "labels that are not there": (lambda: (data, {"labels": "nope.csv"}), r"nope\.csv: no such file"),
        "labels of another length": (lambda: (data, {"labels": {"a": [1, 2]}}), "2 rows for 30 images in column 'a'"),
        "labels by name": (lambda: (data, {"labels": {"a.png": 1}}), "the images have only indices"),
        "labels of lists": (lambda: (data, {"labels": {"a": [[1]] * 30}}), "column 'a' holds a list"),
        "labels of nothing": (lambda: (data, {"labels": {"a": [None] * 30}}), "every row is empty"),
        "two columns of a name": (lambda: tmp / "twice.csv", "two columns of the same name in its header"),
        "a short row": (lambda: tmp / "ragged.csv", "row 2 has 1 cells, the header 2"),
        "a header alone": (lambda: tmp / "header.csv", "has no rows"),
        "an empty file": (lambda: tmp / "no.csv", r"not a CSV table with a header \(it is empty\)"),
        "an example without image": (lambda: tmp / "half.tar", "example '1' has no 'png', only txt"),
        "columns without images": (lambda: data.select_columns(["third", "parity"]), "which of its columns holds"),
        "a column that holds none": (lambda: (data, {"image_key": "third"}), "Item 0 of the data set is of type int64"),
        "no key of a stream": (lambda: (data.to_iterable_dataset(), {"image_key": "imag"}), "Did you mean 'img'"),
        "a stream of numbers": (lambda: data.select_columns(["third"]).to_iterable_dataset(), "which of its keys"),
        "an empty stream": (lambda: torch.utils.data.ChainDataset([]), "The stream is empty"),
        "two names": (lambda: (data, {"images": data}), "Give source; images is its former name"),
        "nothing": (lambda: None, "ImageDataModule needs images"),
        "both kinds of batches": (lambda: (ragged, {"with_factors": True, "with_labels": True}), "not both"),
        "no labels": (lambda: (ragged, {"with_factors": True}), "These images have no labels"),
        "a negative limit": (lambda: (data, {"max_cache_gb": -1}), "max_cache_gb must be finite and not negative"),
    }


def test_bad_input_is_refused_in_one_sentence_when_the_object_is_made(tmp_path: Path, empty_cache: Path) -> None:
    for name, (make, reason) in bad_inputs(tmp_path).items():
        given = make()
        source, options = given if isinstance(given, tuple) else (given, {})
        with pytest.raises((ValueError, FileNotFoundError), match=reason) as caught:
            ImageDataModule(source, **options)
        message = str(caught.value)
        assert "\n" not in message, name
        assert len(message) < 320, name
        assert caught.value.__cause__ is None, name
    assert not empty_cache.exists() or not any(empty_cache.iterdir())


def test_bad_input_of_the_other_ways_in_is_refused_in_one_sentence(tmp_path: Path, empty_cache: Path) -> None:
    h5py = pytest.importorskip("h5py")
    pytest.importorskip("av")
    (tmp_path / "film.mp4").write_bytes(b"no video" * 100)
    (tmp_path / "broken.h5").write_bytes(b"no archive" * 100)
    for name, images in {"gray": np.zeros((3, 8, 8, 1)), "good": np.zeros((3, 8, 8, 3))}.items():
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            file["image"] = images
    cases: dict[str, Callable[[], Any]] = {
        r"film\.mp4: not a video that can be read": lambda: FramePairDataModule(tmp_path / "film.mp4").prepare_data(),
        r"x\.mp4: no such file or folder": lambda: FramePairDataModule(tmp_path / "x.mp4").prepare_data(),
        r"x\.h5: no such file": lambda: HDF5Scenes(tmp_path / "x.h5"),
        "not a whole HDF5 file": lambda: HDF5Scenes(tmp_path / "broken.h5"),
        r"shape \[3, 8, 8, 1\], expected \[N, H, W, 3\]": lambda: HDF5Scenes(tmp_path / "gray.h5"),
        "within images of 8 x 8": lambda: HDF5Scenes(tmp_path / "good.h5", crop=(0, 9, 0, 9)),
        "no array 'z'": lambda: HDF5Scenes(tmp_path / "good.h5", properties={"z": None}),
        "steps must be 'laplace' or": lambda: WalkDataModule(DSprites(), steps="x"),  # type: ignore[arg-type]
        "length must be a whole number of at least 2": lambda: WalkDataModule(DSprites(), length=1),
        "must be a ground-truth data set": lambda: WalkDataModule(3),  # type: ignore[arg-type]
        "must be endless ClevrScenes": lambda: ScenePairDataModule(DSprites()),  # type: ignore[arg-type]
        "from 1 to 14, one less than the properties": lambda: ScenePairDataModule(ClevrScenes(32), k=99),
    }
    for reason, make in cases.items():
        with pytest.raises((ValueError, FileNotFoundError), match=reason) as caught:
            make()
        assert "\n" not in str(caught.value)
        assert caught.value.__cause__ is None, reason
    assert not empty_cache.exists() or not any(path.suffix == ".npy" for path in empty_cache.iterdir())


def test_an_undecodable_image_is_named_and_nothing_is_left(tmp_path: Path, empty_cache: Path) -> None:
    cells = [encoded(n) for n in range(COUNT)]
    cells[7] = b"no image"
    frame = pd.DataFrame({"image": cells})
    with pytest.raises(ValueError, match="Cannot read 1 of 30 images: image 7"):
        module(frame).prepare_data()
    assert not list(empty_cache.glob("*.npy"))
    with pytest.warns(UserWarning, match="Left out 1 of 30 images: image 7"):
        assert len(module(frame, unreadable="skip").pictures) == 29
    with wds.TarWriter(str(tmp_path / "a.tar")) as sink:
        for n, cell in enumerate(cells):
            sink.write({"__key__": f"{n}", "png": cell, "json": json.dumps({"n": n}).encode()})
    with pytest.raises(ValueError, match="Cannot read 1 of 30 images: 7 "):
        next(iter(module([tmp_path / "a.tar"], max_cache_gb=0, batch_size=27).train_dataloader()))


def test_former_names_of_arguments_still_work(tmp_path: Path) -> None:
    with pytest.warns(FutureWarning, match=r"images=\.\.\.\) is now called source"):
        data = ImageDataModule(images=torch.rand(5, 1, 4, 4), labels=np.arange(10).reshape(5, 2))
    with pytest.warns(FutureWarning, match=r"factors=\.\.\.\) is now called label_keys"):
        ImageDataModule(data.source, labels=np.arange(10).reshape(5, 2), factors=["a", "b"])
