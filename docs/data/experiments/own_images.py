"""First and later epochs of 5,000 JPEGs of 128 pixels, at 64: ``python docs/data/experiments/own_images.py``.

A folder of files, parquet, webdataset shards and a Hugging Face data set and stream, each through ImageDataModule,
against torchvision's ``ImageFolder`` with a ``DataLoader`` and ``datasets`` with a transform to tensors. Each way runs
in a process of its own, so that its processor time and its peak memory are its own.
"""

import argparse
import io
import multiprocessing
import os
import resource
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

SIDE = 64


def write(folder: Path, count: int) -> None:
    """Draw smooth random photographs and write them in all formats."""
    import datasets
    import numpy as np
    import webdataset
    from PIL import Image

    rng = np.random.default_rng(0)
    (folder / "photos" / "all").mkdir(parents=True)
    files = []
    for number in range(count):
        small = Image.fromarray(rng.integers(256, size=(16, 16, 3), dtype=np.uint8))
        buffer = io.BytesIO()
        small.resize((128, 128), Image.Resampling.BICUBIC).save(buffer, "jpeg", quality=90)
        files.append(buffer.getvalue())
        (folder / "photos" / "all" / f"{number:05}.jpg").write_bytes(files[-1])
    features = datasets.Features({"image": datasets.Image()})
    cells = {"image": [{"bytes": file, "path": None} for file in files]}
    datasets.Dataset.from_dict(cells, features=features).to_parquet(folder / "images.parquet")
    with webdataset.TarWriter(str(folder / "images.tar")) as sink:
        for number, file in enumerate(files):
            sink.write({"__key__": f"{number:05}", "jpg": file})


def ours(source: Any, **options: Any) -> Iterable[Any]:
    """The training batches of an ImageDataModule."""
    from unknot.datamodules import ImageDataModule

    data = ImageDataModule(source, image_size=SIDE, seed=0, val_fraction=1e-6, **options)
    data.prepare_data()
    return data.train_dataloader()


def parquet_stream(folder: Path) -> Any:
    """The parquet as a ``datasets.IterableDataset``."""
    import datasets

    files, cache = str(folder / "images.parquet"), str(folder / "hf")
    return datasets.load_dataset("parquet", data_files=files, split="train", streaming=True, cache_dir=cache)


def tar_stream(folder: Path) -> Any:
    """The shard as a ``webdataset.WebDataset``."""
    import webdataset

    return webdataset.WebDataset(str(folder / "images.tar"), shardshuffle=False, empty_check=False)


def ours_streamed(data: Any) -> Iterable[Any]:
    """The training batches of an ImageDataModule of a stream."""
    return ours(data, steps_per_epoch=int(os.environ["COUNT"]) // 64)


def to_tensor() -> Any:
    """Transform of torchvision that resizes an image and makes it a tensor."""
    from torchvision import transforms

    return transforms.Compose([transforms.Resize(SIDE), transforms.ToTensor()])


def datasets_streamed(folder: Path) -> Iterable[Any]:
    """``datasets`` streaming, shuffled in a buffer, with a DataLoader."""
    from torch.utils.data import DataLoader

    transform = to_tensor()
    data = parquet_stream(folder).shuffle(seed=0, buffer_size=1024)
    return DataLoader(data.map(lambda row: {"image": transform(row["image"].convert("RGB"))}), 64)


def webdataset_streamed(folder: Path) -> Iterable[Any]:
    """``webdataset`` with its own decoder, shuffled in a buffer, with a DataLoader."""
    from torch.utils.data import DataLoader

    data = tar_stream(folder).shuffle(1024).decode("pilrgb").to_tuple("jpg").map_tuple(to_tensor())
    return DataLoader(data.batched(64), batch_size=None)


def hugging_face(folder: Path) -> Any:
    """The parquet as a ``datasets.Dataset``."""
    import datasets

    return datasets.Dataset.from_parquet(str(folder / "images.parquet"), cache_dir=str(folder / "hf"))


def image_folder(folder: Path) -> Iterable[Any]:
    """Torchvision's ImageFolder with a DataLoader."""
    from torch.utils.data import DataLoader
    from torchvision import datasets

    return DataLoader(datasets.ImageFolder(str(folder / "photos"), to_tensor()), 64, shuffle=True)


def datasets_torch(folder: Path) -> Iterable[Any]:
    """``datasets`` with a DataLoader."""
    import torch
    from torch.utils.data import DataLoader

    transform = to_tensor()

    def apply(rows: dict[str, Any]) -> dict[str, Any]:
        return {"image": torch.stack([transform(image.convert("RGB")) for image in rows["image"]])}

    return DataLoader(hugging_face(folder).with_transform(apply), 64, shuffle=True)


WAYS: dict[str, Callable[[Path], Iterable[Any]]] = {
    "torchvision ImageFolder": image_folder,
    "datasets, torch": datasets_torch,
    "unknot, folder": lambda folder: ours(folder / "photos"),
    "unknot, parquet": lambda folder: ours(folder / "images.parquet"),
    "unknot, webdataset": lambda folder: ours(folder / "images.tar"),
    "unknot, Dataset": lambda folder: ours(hugging_face(folder)),
    "unknot, folder, no copy": lambda folder: ours(folder / "photos", max_cache_gb=0),
    "datasets, stream": datasets_streamed,
    "unknot, Dataset stream": lambda folder: ours_streamed(parquet_stream(folder)),
    "webdataset, stream": webdataset_streamed,
    "unknot, webdataset stream": lambda folder: ours_streamed(tar_stream(folder)),
}


def measure(name: str, folder: Path, epochs: int, results: Any) -> None:
    """Go through the epochs of one way and put its seconds of processor and of clock, and its peak memory."""
    import torch

    torch.set_num_threads(1)
    if "datasets" in name or "Dataset" in name:
        hugging_face(folder)  # written to Arrow once, which is not measured
    import webdataset  # noqa: F401

    import unknot.datamodules  # noqa: F401

    seconds = []
    clock, processor = time.perf_counter(), time.process_time()
    batches = WAYS[name](folder)
    images = 0
    for _ in range(epochs):
        for batch in batches:
            batch = batch["image"] if isinstance(batch, dict) else batch
            images += len(batch[0] if isinstance(batch, list) else batch)
        seconds.append((time.perf_counter() - clock, time.process_time() - processor))
        clock, processor = time.perf_counter(), time.process_time()
    results.put((seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3, images))


def main() -> None:
    """Print a row for each way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--only", nargs="*", choices=WAYS, default=list(WAYS), help="some of the ways")
    options = parser.parse_args()
    os.environ["COUNT"] = str(options.count)
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, options.count)
        print(f"{options.count:,} JPEGs of 128 pixels, at {SIDE}; seconds of processor (of clock)")
        print(f"{'':26s} {'first epoch':>16s} {'later epochs':>16s} {'peak memory':>12s} {'copy':>9s}")
        for way in options.only:
            os.environ["UNKNOT_CACHE"] = str(folder / "cache" / way.replace(" ", "-").replace(",", ""))
            results = spawn.Queue()
            process = spawn.Process(target=measure, args=(way, folder, options.epochs, results))
            process.start()
            seconds, memory, images = results.get()
            process.join()
            later = [sum(each) / len(seconds[1:]) for each in zip(*seconds[1:], strict=True)]
            copy = sum(path.stat().st_size for path in Path(os.environ["UNKNOT_CACHE"]).rglob("*.npy"))
            first = seconds[0]
            print(
                f"{way:26s} {first[1]:7.2f} ({first[0]:6.2f}) {later[1]:7.2f} ({later[0]:6.2f}) {memory:9.0f} MB "
                f"{copy / 1e6:6.1f} MB   {images:,} images",
                flush=True,
            )


if __name__ == "__main__":
    main()
