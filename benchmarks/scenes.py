"""Images per second of the drawn scenes: on one thread and on two, and beside doing it image by image or from files."""

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import torch
from common import Row, compare, run
from PIL import Image

from unknot.datamodules.published.clevr import CLEVR
from unknot.datamodules.scenes.clevr_scenes import ClevrScenes, draw_scenes, sample_scenes
from unknot.datamodules.scenes.rooms3d import Rooms3D, arrangements
from unknot.datamodules.sets import SetDataModule

BATCH, REPEATS = 64, 5


def rate(count: int, draw: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """Images per second of the quickest of several runs: other work on the machine only ever slows one down."""
    draw()
    times = []
    for _ in range(REPEATS):
        start = clock()
        draw()
        times.append(clock() - start)
    return count / min(times)


def clevr_scenes() -> None:
    """Sampling and drawing, by size and number of threads and of processes."""
    for size in (128, 64):
        dataset = ClevrScenes(image_size=size)

        def draw(n: int = BATCH, seed: int = 0, dataset: ClevrScenes = dataset) -> object:
            return dataset.draw(n, torch.Generator().manual_seed(seed))

        torch.set_num_threads(1)
        alone = rate(BATCH, draw, time.process_time)
        one_by_one = rate(16, lambda draw=draw: [draw(1, seed) for seed in range(16)], time.process_time)
        print(f"ClevrScenes {size} px, one thread:  {alone:6.0f} images/s of processor time, in batches of {BATCH}")
        print(f"ClevrScenes {size} px, one by one:  {one_by_one:6.0f} images/s, ratio {alone / one_by_one:.1f}")
        for threads in (1, 2):
            torch.set_num_threads(threads)
            print(f"ClevrScenes {size} px, {threads} thread(s): {rate(BATCH, draw):6.0f} images/s by the clock")
        torch.set_num_threads(1)
        for workers in (1, 2):
            data = SetDataModule(dataset, batch_size=BATCH, num_workers=workers, seed=0)
            batches = iter(data.train_dataloader())
            list(islice(batches, 4))
            start = time.perf_counter()
            list(islice(batches, 20))
            found = 20 * BATCH / (time.perf_counter() - start)
            print(f"ClevrScenes {size} px, {workers} worker(s): {found:6.0f} images/s by the clock")
            del batches


def entries() -> Iterator[Row]:
    """A batch of scenes at once, beside the same number one by one."""
    torch.set_num_threads(1)
    dataset = ClevrScenes(image_size=64)

    def draw(n: int, seed: int = 0) -> object:
        return dataset.draw(n, torch.Generator().manual_seed(seed))

    def one_by_one() -> None:
        for seed in range(BATCH):
            draw(1, seed)

    yield compare(f"{BATCH} drawn scenes of 64 x 64 pixels", lambda: draw(BATCH), "scene by scene", one_by_one, 3)


def everything() -> None:
    """All of it."""
    clevr_scenes()
    original_files()
    rooms3d()


def original_files() -> None:
    """The same scenes as 480 x 320 PNG files, which is how CLEVR comes."""
    scenes = sample_scenes(BATCH, torch.Generator().manual_seed(0))
    images, _ = draw_scenes(scenes, (320, 480))
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        (root / "images" / "train").mkdir(parents=True)
        (root / "scenes").mkdir()
        annotations = scenes.annotations()
        for scene, image in zip(annotations, images, strict=True):
            Image.fromarray(image.permute(1, 2, 0).numpy()).save(root / "images" / "train" / scene["image_filename"])
        (root / "scenes" / "CLEVR_train_scenes.json").write_text(json.dumps({"scenes": annotations}))
        files = CLEVR(root, image_size=64)
        read = rate(BATCH, lambda: files.batch(range(BATCH)), time.process_time)
    drawn = ClevrScenes(image_size=64)
    fresh = rate(BATCH, lambda: drawn.draw(BATCH, torch.Generator().manual_seed(0)), time.process_time)
    print(f"64 px from PNG files: {read:.0f} images/s, drawn: {fresh:.0f}, ratio {fresh / read:.1f}")


def rooms3d() -> None:
    """Casting the arrangements once, then batches; then every image there is."""
    torch.set_num_threads(1)
    start = time.process_time()
    arrangements()
    print(f"Rooms3D, casting 480 arrangements: {time.process_time() - start:.1f} s of processor time, once per process")
    dataset = Rooms3D()
    factors = dataset.factor_space.sample(BATCH, torch.Generator().manual_seed(0))
    for threads in (1, 2):
        torch.set_num_threads(threads)
        print(
            f"Rooms3D, {threads} thread(s): {rate(BATCH, lambda: dataset.observe(factors)):7.0f} images/s by the clock"
        )
    torch.set_num_threads(1)
    batch = rate(BATCH, lambda: dataset.observe(factors), time.process_time)
    alone = rate(BATCH, lambda: [dataset.observe(factors[i : i + 1]) for i in range(BATCH)], time.process_time)
    print(f"Rooms3D, batches of {BATCH} against image by image: {batch:.0f} and {alone:.0f}, ratio {batch / alone:.1f}")
    start = time.perf_counter()
    for index in torch.arange(len(dataset)).split(1000):
        dataset.observe(dataset.factor_space.factors(index))
    print(f"Rooms3D, all {len(dataset):,} images: {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    run(entries, everything)
