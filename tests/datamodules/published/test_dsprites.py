import hashlib
import io
import itertools
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image
from torch import Tensor

from unknot.datamodules import ColorDSprites, DSprites, FactorSpace, NoisyDSprites, ScreamDSprites
from unknot.datamodules.published import dsprites
from unknot.datamodules.published.dsprites import draw_grid, read_original
from unknot.files import replacing

Arrays = dict[str, npt.NDArray[Any]]
Damage = Callable[[Path], object]
Writer = Callable[[Path, Arrays], object]

SMALL_SPACE = FactorSpace(names=("shape", "scale", "orientation", "pos_x", "pos_y"), sizes=(1, 1, 1, 32, 32))
TINY_SPACE = FactorSpace(names=SMALL_SPACE.names, sizes=(2, 1, 3, 2, 2))


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# The drawn images.


def test_drawn_images_are_the_original_ones(sprites: DSprites, shared_data: Path) -> None:
    path = shared_data / "dsprites" / "dsprites_subset_20000.npz"
    if not path.exists():
        pytest.skip("no original images in the shared data")
    with np.load(path, allow_pickle=False) as file:
        index = torch.from_numpy(file["original_dataset_indices"])
        classes = torch.from_numpy(file["latents_classes"])
        images = torch.from_numpy(file["imgs"])
    factors = sprites.factor_space.factors(index)
    assert torch.equal(factors, classes)

    wrong_pixels = torch.cat(
        [
            (sprites.observe(some)[:, 0] != originals).sum(dim=(1, 2))
            for some, originals in zip(factors.split(2000), images.split(2000), strict=True)
        ]
    )
    assert len(wrong_pixels) == 20_000
    assert (wrong_pixels == 0).float().mean() >= 0.999
    assert wrong_pixels.max() <= 2


def test_drawn_images_are_binary_and_keep_off_the_border(sprites: DSprites) -> None:
    outermost = torch.cartesian_prod(*map(torch.tensor, ([0, 1, 2], [5], range(40), [0, 31], [0, 31])))
    images = sprites.observe(outermost)
    assert images.shape == (480, *sprites.image_shape)
    assert images.dtype == torch.float32
    assert set(images.unique().tolist()) == {0.0, 1.0}
    inked = images.amax(dim=(0, 1))
    for lines in (inked.any(dim=0), inked.any(dim=1)):
        assert not lines[:2].any()
        assert lines[[3, 60]].all()
        assert not lines[62:].any()


@pytest.mark.parametrize(("shape", "area"), [(0, 368.7), (1, 289.3), (2, 224.5)])
def test_sprites_have_the_original_areas(sprites: DSprites, shape: int, area: float) -> None:
    factors = sprites.factor_space.sample(2000, seeded(shape))
    factors[:, 0] = shape
    for scale, ratio in ((5, 1.0), (0, 0.25)):
        factors[:, 1] = scale
        areas = sprites.observe(factors).sum(dim=(1, 2, 3))
        assert areas.mean().item() == pytest.approx(ratio * area, rel=0.005)


def test_factors_move_the_sprite_as_they_say(sprites: DSprites) -> None:
    rows, columns = torch.meshgrid(torch.arange(64.0), torch.arange(64.0), indexing="ij")

    def centre(pos_x: int, pos_y: int) -> tuple[float, float]:
        image = sprites.observe(torch.tensor([[0, 5, 0, pos_x, pos_y]]))[0, 0]
        return ((image * columns).sum() / image.sum()).item(), ((image * rows).sum() / image.sum()).item()

    assert centre(0, 0) == pytest.approx((15.5, 15.5), abs=0.5)
    assert centre(31, 0) == pytest.approx((47.5, 15.5), abs=0.5)
    assert centre(0, 31) == pytest.approx((15.5, 47.5), abs=0.5)


def test_first_and_last_orientation_are_the_same(sprites: DSprites) -> None:
    factors = sprites.factor_space.sample(500, seeded(0))
    first, last, second = factors.clone(), factors.clone(), factors.clone()
    first[:, 2], last[:, 2], second[:, 2] = 0, 39, 1
    assert torch.equal(sprites.observe(first), sprites.observe(last))
    assert not torch.equal(sprites.observe(first), sprites.observe(second))


def test_items_are_the_grid_in_order(sprites: DSprites) -> None:
    assert len(sprites) == 737_280
    image, factors = sprites[737_279]
    assert factors.tolist() == [2, 5, 39, 31, 31]
    assert torch.equal(image, sprites.observe(factors[None])[0])
    assert sprites.observe(torch.zeros(0, 5, dtype=torch.int64)).shape == (0, 1, 64, 64)


# The cache.


class SmallDSprites(DSprites):
    """A grid of one sprite at 32 x 32 positions."""

    factor_space = SMALL_SPACE


@pytest.fixture
def draws(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Draw only the first sprite; the list grows by one with every drawing."""
    calls: list[str] = []

    def draw_one() -> Iterator[npt.NDArray[np.uint8]]:
        calls.append("drawn")
        yield from itertools.islice(draw_grid(), 1)

    monkeypatch.setattr(dsprites, "draw_grid", draw_one)
    return calls


def no_drawing() -> Iterator[npt.NDArray[np.uint8]]:
    raise AssertionError("the grid was drawn again")


def entries(folder: Path) -> list[Path]:
    """Files of a cache, without locks."""
    return sorted(path for path in folder.iterdir() if path.is_file())


def small_images() -> Tensor:
    return SmallDSprites().observe(SMALL_SPACE.factors(torch.arange(SMALL_SPACE.size)))


def test_whole_grid_is_drawn_once(drawn: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dsprites, "draw_grid", no_drawing)
    (file,) = entries(drawn)
    assert file.stat().st_size < 380e6
    before = file.stat().st_mtime_ns
    for dataset in (DSprites(), ColorDSprites(), NoisyDSprites()):
        assert dataset.is_prepared()
        dataset.prepare()
    assert file.stat().st_mtime_ns == before


def test_cache_is_made_on_first_use_and_shared(empty_cache: Path, draws: list[str]) -> None:
    assert not SmallDSprites().is_prepared()
    first = small_images()
    assert SmallDSprites().is_prepared()
    assert torch.equal(small_images(), first)
    assert draws == ["drawn"]
    assert len(entries(empty_cache)) == 1
    assert first.sum(dim=(1, 2, 3)).min() > 0


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


DAMAGES: dict[str, Damage] = {
    "first byte": lambda path: flip(path, 0),
    "byte in the middle": lambda path: flip(path, 1024 * 256),
    "last pixel": lambda path: flip(path, 1024 * 512 - 1),
    "checksum": lambda path: flip(path, -1),
    "one byte short": lambda path: os.truncate(path, path.stat().st_size - 1),
    "half": lambda path: os.truncate(path, path.stat().st_size // 2),
    "empty": lambda path: os.truncate(path, 0),
    "too long": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size - 4) + b"\1\2\3\4"),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_damaged_cache_is_drawn_again(empty_cache: Path, draws: list[str], damage: Damage) -> None:
    good = small_images()
    (file,) = entries(empty_cache)
    content = file.read_bytes()
    damage(file)
    assert file.read_bytes() != content
    assert torch.equal(small_images(), good)
    assert draws == ["drawn", "drawn"]
    assert entries(empty_cache) == [file]
    assert file.read_bytes() == content


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt])
def test_failed_drawing_leaves_nothing_behind(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch, failure: type[BaseException]
) -> None:
    def fail() -> Iterator[npt.NDArray[np.uint8]]:
        yield next(draw_grid())
        raise failure

    monkeypatch.setattr(dsprites, "draw_grid", fail)
    dataset = SmallDSprites()
    with pytest.raises(failure):
        dataset.prepare()
    assert entries(empty_cache) == []
    assert not dataset.is_prepared()


def test_a_drawing_that_ends_early_is_an_error(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dsprites, "draw_grid", lambda: iter([np.zeros((10, 512), dtype=np.uint8)]))
    with pytest.raises(ValueError, match="10 images instead of 1024"):
        SmallDSprites().prepare()
    assert entries(empty_cache) == []


DRAW = """
from unknot.datamodules import DSprites
DSprites().prepare()
"""


def test_a_killed_drawing_is_cleared_away_by_the_next(empty_cache: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", DRAW])
    while not (parts := list(empty_cache.glob(".*.part"))) or parts[0].stat().st_size < 1_000_000:
        time.sleep(0.005)
        assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert entries(empty_cache) == parts
    assert not DSprites().is_prepared()
    DSprites().prepare()
    assert [path.name for path in entries(empty_cache)] == ["dsprites-drawn.npy"]


def test_of_two_that_start_together_one_draws(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawing, calls = threading.Event(), []

    def draw_slowly() -> Iterator[npt.NDArray[np.uint8]]:
        calls.append("drawn")
        drawing.set()
        time.sleep(0.3)
        yield from itertools.islice(draw_grid(), 1)

    monkeypatch.setattr(dsprites, "draw_grid", draw_slowly)
    first, second = SmallDSprites(), SmallDSprites()
    thread = threading.Thread(target=first.prepare)
    thread.start()
    drawing.wait()
    second.prepare()
    thread.join()
    assert calls == ["drawn"]
    assert torch.equal(first[5][0], second[5][0])


def test_opened_images_survive_a_replaced_cache(empty_cache: Path, draws: list[str]) -> None:
    dataset = SmallDSprites()
    before = dataset.observe(torch.tensor([[0, 0, 0, 5, 9]]))
    (file,) = entries(empty_cache)
    with replacing(file) as beside:
        beside.write_bytes(b"short")
    assert torch.equal(dataset.observe(torch.tensor([[0, 0, 0, 5, 9]])), before)


def test_simultaneous_writers_do_not_meet(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with replacing(path) as first, replacing(path) as second:
        first.write_text("first")
        second.write_text("second")
        assert not path.exists()
    assert path.read_text() == "first"
    assert list(tmp_path.iterdir()) == [path]


def test_prepared_datasets_travel_light(drawn: Path) -> None:
    dataset = DSprites()
    dataset.prepare()
    factors = dataset.factor_space.sample(16, seeded(0))
    pickled = pickle.dumps(dataset)
    assert len(pickled) < 10_000
    images = dataset.observe(factors)
    assert torch.equal(pickle.loads(pickled).observe(factors), images)
    assert torch.equal(dataset.observe(factors), images)


# The original file.


def published(space: FactorSpace) -> Arrays:
    """The arrays of the published file, for a small space and with random images."""
    classes = space.factors(torch.arange(space.size)).numpy()
    colour = np.zeros((space.size, 1), dtype=np.int64)
    images = np.random.default_rng(0).random((space.size, 64, 64)) < 0.02
    return {
        "metadata": np.array({"title": "dSprites dataset"}, dtype=object),
        "imgs": images.astype(np.uint8),
        "latents_values": np.concatenate([colour + 1.0, classes / np.array(space.sizes)], axis=1),
        "latents_classes": np.concatenate([colour, classes], axis=1),
    }


class OriginalTiny(DSprites):
    factor_space = TINY_SPACE


@pytest.mark.parametrize("space", [TINY_SPACE, FactorSpace(names=SMALL_SPACE.names, sizes=(1, 1, 2, 32, 33))])
def test_original_file_is_read(tmp_path: Path, space: FactorSpace) -> None:
    arrays = published(space)
    np.savez_compressed(tmp_path / "dsprites.npz", **arrays)
    packed = np.concatenate(list(read_original(tmp_path / "dsprites.npz", space=space)))
    assert packed.shape == (space.size, 512)
    assert np.array_equal(np.unpackbits(packed, axis=1).reshape(-1, 64, 64), arrays["imgs"])


def test_original_converts_once(tmp_path: Path, empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "dsprites.npz"
    arrays = published(TINY_SPACE)
    np.savez_compressed(path, **arrays)
    dataset = OriginalTiny(source=path)
    assert not dataset.is_prepared()
    images = dataset.observe(TINY_SPACE.factors(torch.arange(TINY_SPACE.size)))
    assert np.array_equal(images[:, 0], arrays["imgs"])

    monkeypatch.setattr(dsprites, "read_original", lambda *_: no_drawing())
    again = OriginalTiny(source=str(path))
    assert again.is_prepared()
    assert torch.equal(again[3][0], images[3])


def test_a_changed_original_converts_again(tmp_path: Path, empty_cache: Path) -> None:
    path = tmp_path / "dsprites.npz"
    arrays = published(TINY_SPACE)
    np.savez_compressed(path, **arrays)
    OriginalTiny(source=path).prepare()
    arrays["imgs"] = 1 - arrays["imgs"]
    np.savez_compressed(path, **arrays)
    assert np.array_equal(OriginalTiny(source=path)[3][0][0], arrays["imgs"][3])


def test_drawn_and_original_have_the_same_factors(tmp_path: Path) -> None:
    assert DSprites().factor_space == DSprites(source=tmp_path / "dsprites.npz").factor_space
    assert DSprites().factor_space == FactorSpace(
        names=("shape", "scale", "orientation", "pos_x", "pos_y"), sizes=(3, 6, 40, 32, 32)
    )


def test_the_original_can_be_downloaded(mirror: Path, empty_cache: Path) -> None:
    path = mirror / "dsprites_ndarray_co1sh3sc6or40x32y32_64x64.npz"
    arrays = published(TINY_SPACE)
    np.savez_compressed(path, **arrays)

    class Downloaded(OriginalTiny):
        files = (replace(dsprites.ORIGINAL, md5=hashlib.md5(path.read_bytes()).hexdigest()),)

    dataset = Downloaded(source="download")
    assert not dataset.is_prepared()
    assert np.array_equal(dataset[5][0][0], arrays["imgs"][5])
    assert (empty_cache / "downloads" / path.name).exists()
    assert Downloaded(source="download").is_prepared()
    assert not Downloaded().is_prepared()
    path.unlink()
    assert np.array_equal(Downloaded(source="download")[3][0][0], arrays["imgs"][3])


def test_only_the_published_original_is_accepted(mirror: Path) -> None:
    np.savez_compressed(mirror / dsprites.ORIGINAL.name, **published(TINY_SPACE))
    with pytest.raises(OSError, match="expected 7da33b31b13a06f4b04a70402ce90c2e"):
        OriginalTiny(source="download").prepare()


def changed(**changes: npt.NDArray[Any]) -> Writer:
    return lambda path, arrays: np.savez_compressed(path, **arrays | changes)


def without(key: str) -> Writer:
    return lambda path, arrays: np.savez_compressed(path, **{k: v for k, v in arrays.items() if k != key})


def rows(selection: npt.NDArray[np.int64]) -> Writer:
    return lambda path, arrays: np.savez_compressed(
        path, **arrays | {k: arrays[k][selection] for k in ("imgs", "latents_values", "latents_classes")}
    )


def truncate(path: Path, arrays: Arrays) -> None:
    np.savez_compressed(path, **arrays)
    os.truncate(path, path.stat().st_size * 2 // 3)


def spoil_checksum(path: Path, arrays: Arrays) -> None:
    np.savez_compressed(path, **arrays)
    with zipfile.ZipFile(path) as archive:
        checksum = archive.getinfo("imgs.npy").CRC.to_bytes(4, "little")
    path.write_bytes(path.read_bytes().replace(checksum, b"\1\2\3\4"))


def lengthen(path: Path, arrays: Arrays) -> None:
    def array_bytes(array: npt.NDArray[Any]) -> bytes:
        buffer = io.BytesIO()
        np.save(buffer, array)
        return buffer.getvalue()

    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("latents_classes.npy", array_bytes(arrays["latents_classes"]))
        archive.writestr("imgs.npy", array_bytes(arrays["imgs"]) + b"more")


SIZE = TINY_SPACE.size
BROKEN: dict[str, tuple[Writer, str]] = {
    "truncated": (truncate, "not a zip file"),
    "garbage": (lambda path, _: path.write_bytes(b"<html>404 not found</html>" * 99), "not a zip file"),
    "empty": (lambda path, _: path.write_bytes(b""), "not a zip file"),
    "damaged images": (spoil_checksum, "CRC"),
    "too many bytes": (lengthen, "more data than the header states"),
    "no images": (without("imgs"), "imgs.npy"),
    "no classes": (without("latents_classes"), "latents_classes.npy"),
    "a subset": (rows(np.arange(10)), f"its 10 rows are not the whole grid of {SIZE}"),
    "wrong order": (rows(np.arange(SIZE)[::-1]), "in order"),
    "flat classes": (changed(latents_classes=np.zeros(SIZE, dtype=np.int64)), "indices"),
    "small images": (
        changed(imgs=np.zeros((SIZE, 32, 32), dtype=np.uint8)),
        r"\(24, 32, 32\), expected uint8",
    ),
    "too few images": (changed(imgs=np.zeros((9, 64, 64), dtype=np.uint8)), r"\(9, 64, 64\), expected uint8"),
    "float images": (changed(imgs=np.zeros((SIZE, 64, 64))), "float64 .* expected uint8"),
    "huge header": (
        changed(latents_classes=np.zeros(SIZE, dtype=[("x" * 12_000, np.int64)])),
        "Header info length",
    ),
}


@pytest.mark.parametrize(("write", "reason"), BROKEN.values(), ids=BROKEN.keys())
def test_broken_originals_explained(tmp_path: Path, empty_cache: Path, write: Writer, reason: str) -> None:
    path = tmp_path / "dsprites.npz"
    write(path, published(TINY_SPACE))
    with pytest.raises(ValueError, match=reason) as caught:
        OriginalTiny(source=path).prepare()
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "Download it again from https://" in message
    assert "or leave out `source` to draw" in message
    assert "\n" not in message
    assert not empty_cache.exists() or entries(empty_cache) == []


def test_a_missing_original_file_is_explained(tmp_path: Path, empty_cache: Path) -> None:
    path = tmp_path / "nowhere.npz"
    assert not DSprites(source=path).is_prepared()
    with pytest.raises(FileNotFoundError) as caught:
        DSprites(source=path).prepare()
    message = str(caught.value)
    assert message.startswith(f"{path}: no such file.")
    assert "source='download'" in message
    assert "\n" not in message


class Payload:
    """Makes a folder where it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (self.folder,)


@pytest.mark.parametrize("key", ["metadata", "latents_classes", "imgs"])
def test_nothing_is_unpickled(tmp_path: Path, key: str) -> None:
    path, trace = tmp_path / "dsprites.npz", tmp_path / "trace"
    bomb = np.array(Payload(trace), dtype=object)
    np.savez_compressed(path, **published(TINY_SPACE) | {key: bomb})
    if key == "metadata":
        assert len(np.concatenate(list(read_original(path, space=TINY_SPACE)))) == SIZE
    else:
        with pytest.raises(ValueError, match="not a whole original dSprites file"):
            list(read_original(path, space=TINY_SPACE))
    assert not trace.exists()
    np.load(path, allow_pickle=True)[key]  # the payload does work
    assert trace.exists()


# The variants.


def write_painting(path: Path, pixels: npt.NDArray[np.uint8]) -> Path:
    Image.fromarray(pixels).save(path)
    return path


@pytest.fixture
def colourful(tmp_path: Path) -> Path:
    pixels = np.random.default_rng(0).integers(256, size=(70, 72, 3), dtype=np.uint8)
    return write_painting(tmp_path / "colourful.png", pixels)


@pytest.fixture(params=["color", "noisy", "scream"])
def variant(request: pytest.FixtureRequest, drawn: Path, colourful: Path) -> DSprites:
    return {
        "color": lambda: ColorDSprites(),
        "noisy": lambda: NoisyDSprites(),
        "scream": lambda: ScreamDSprites(scream=colourful),
    }[request.param]()


def test_variants_are_rgb_in_range(variant: DSprites) -> None:
    assert variant.factor_space == DSprites.factor_space
    images = variant.observe(variant.factor_space.sample(32, seeded(0)), seeded(1))
    assert images.shape == (32, 3, 64, 64)
    assert variant.image_shape == (3, 64, 64)
    assert images.dtype == torch.float32
    assert 0 <= images.min() < images.max() <= 1
    assert variant[5][0].shape == (3, 64, 64)


def test_variants_are_set_by_the_generator(variant: DSprites) -> None:
    factors = variant.factor_space.sample(4, seeded(0))
    images = variant.observe(factors, seeded(1))
    assert torch.equal(variant.observe(factors, seeded(1)), images)
    assert not torch.equal(variant.observe(factors, seeded(2)), images)
    torch.manual_seed(7)
    state = torch.get_rng_state()
    variant.observe(factors, seeded(1))
    assert torch.equal(torch.get_rng_state(), state)


def test_variants_draw_anew_for_every_image(variant: DSprites) -> None:
    factors = variant.factor_space.sample(1, seeded(0)).expand(8, -1)
    images = variant.observe(factors, seeded(1))
    assert len(images.flatten(1).unique(dim=0)) == 8


def test_color_scales_each_channel_of_the_sprite(drawn: Path, sprites: DSprites) -> None:
    factors = DSprites.factor_space.sample(300, seeded(0))
    masks = sprites.observe(factors)
    images = ColorDSprites().observe(factors, seeded(1))
    scales = images.amax(dim=(2, 3), keepdim=True)
    assert torch.equal(images, masks * scales)
    assert 0.5 <= scales.min() < 0.51
    assert 0.99 < scales.max() <= 1
    assert scales.mean(dim=0).flatten().tolist() == pytest.approx([0.75] * 3, abs=0.03)
    assert torch.corrcoef(scales.flatten(1).T).triu(1).abs().max() < 0.2  # channels are independent


def test_noisy_has_noise_around_white_sprites(drawn: Path, sprites: DSprites) -> None:
    factors = DSprites.factor_space.sample(100, seeded(0))
    inside = (sprites.observe(factors) == 1).expand(-1, 3, -1, -1)
    images = NoisyDSprites().observe(factors, seeded(1))
    assert (images[inside] == 1).all()
    noise = images[~inside]
    assert noise.mean().item() == pytest.approx(0.5, abs=0.005)
    assert noise.var().item() == pytest.approx(1 / 12, abs=0.002)
    assert not torch.equal(images[:, 0], images[:, 1])


def test_scream_inverts_the_painting_under_the_sprite(drawn: Path, sprites: DSprites, tmp_path: Path) -> None:
    colour = np.array([51, 102, 204], dtype=np.uint8)
    painting = write_painting(tmp_path / "plain.png", np.broadcast_to(colour, (80, 90, 3)).copy())
    factors = DSprites.factor_space.sample(300, seeded(0))
    masks = sprites.observe(factors)
    images = ScreamDSprites(scream=painting).observe(factors, seeded(1))

    background = images[:, :, :1, :1]  # sprites keep off the corner
    assert torch.equal(images, torch.where(masks == 1, 1 - background, background))
    tint = 2 * background - torch.from_numpy(colour / 255).float().view(3, 1, 1)
    assert tint.amin(dim=0).flatten().tolist() == pytest.approx([0, 0, 0], abs=0.02)
    assert tint.amax(dim=0).flatten().tolist() == pytest.approx([1, 1, 1], abs=0.02)


def test_scream_takes_patches_from_all_over_the_painting(drawn: Path, colourful: Path) -> None:
    painting = torch.from_numpy(np.array(Image.open(colourful))).permute(2, 0, 1) / 255
    patches = painting.unfold(1, 64, 1).unfold(2, 64, 1)  # [3, 7, 9, 64, 64]
    factors = DSprites.factor_space.sample(500, seeded(0))
    images = ScreamDSprites(scream=colourful).observe(factors, seeded(1))

    border = 2 * images[:, :, 0, :]  # no sprite reaches the first row
    tint = border[:, :, None, None] - patches[None, :, :, :, 0]  # constant where the patch is the right one
    spread = (tint.amax(-1) - tint.amin(-1)).amax(1).flatten(1)
    assert (spread.amin(1) < 1e-5).all()
    assert len(spread.argmin(1).unique()) == 7 * 9


def test_scream_of_the_least_size(drawn: Path, tmp_path: Path) -> None:
    painting = write_painting(tmp_path / "least.png", np.zeros((64, 64, 3), dtype=np.uint8))
    assert ScreamDSprites(scream=painting)[0][0].shape == (3, 64, 64)


def test_scream_takes_other_kinds_of_pictures(drawn: Path, tmp_path: Path) -> None:
    painting = write_painting(tmp_path / "grey.gif", np.full((100, 100), 128, dtype=np.uint8))
    assert ScreamDSprites(scream=painting)[0][0].shape == (3, 64, 64)


def test_scream_of_the_real_painting(drawn: Path, shared_data: Path) -> None:
    painting = shared_data / "scream" / "scream.jpg"
    if not painting.exists():
        pytest.skip("no painting in the shared data")
    dataset = ScreamDSprites(scream=painting)
    assert dataset.is_prepared()
    images = dataset.observe(torch.tensor([[0, 5, 0, 16, 16]]).expand(64, -1), seeded(0))
    assert images.shape == (64, 3, 64, 64)
    assert 0 <= images.min() < images.max() <= 1
    assert images[:, :, :16].std(dim=(2, 3)).mean() > 0.02  # there is something in the background
    assert len(images.flatten(1).unique(dim=0)) == 64


def write_truncated_painting(path: Path) -> None:
    write_painting(path, np.random.default_rng(0).integers(256, size=(100, 100, 3), dtype=np.uint8))
    os.truncate(path, 5000)


BAD_PAINTINGS: dict[str, tuple[Callable[[Path], object], str]] = {
    "garbage": (lambda path: path.write_bytes(b"no picture"), "not a readable picture"),
    "truncated": (write_truncated_painting, "not a readable picture"),
    "too small": (
        lambda path: write_painting(path, np.zeros((63, 200, 3), dtype=np.uint8)),
        "200 x 63 pixels after shrinking, at least 64 needed",
    ),
    "too narrow": (
        lambda path: write_painting(path, np.zeros((1000, 100, 3), dtype=np.uint8)),
        "27 x 274 pixels after shrinking, at least 64 needed",
    ),
}


@pytest.mark.parametrize(("write", "reason"), BAD_PAINTINGS.values(), ids=BAD_PAINTINGS.keys())
def test_bad_paintings_are_explained(
    tmp_path: Path, empty_cache: Path, write: Callable[[Path], object], reason: str
) -> None:
    path = tmp_path / "scream.png"
    write(path)
    with pytest.raises(ValueError, match=reason) as caught:
        ScreamDSprites(scream=path).prepare()
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_a_missing_painting_is_explained(tmp_path: Path, empty_cache: Path) -> None:
    path = tmp_path / "nowhere.jpg"
    dataset = ScreamDSprites(scream=path)
    assert not dataset.is_prepared()
    with pytest.raises(FileNotFoundError) as caught:
        dataset.prepare()
    assert str(caught.value) == f"{path}: no such file. Give the path of a picture of The Scream."


class SmallScream(ScreamDSprites):
    factor_space = SMALL_SPACE


def test_the_painting_is_downloaded_when_none_is_given(
    mirror: Path, colourful: Path, draws: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (mirror / "scream.jpg").write_bytes(colourful.read_bytes())
    assert SmallScream().download_size == 174_515
    with pytest.raises(OSError, match="expected dcab7bae866fbb396e01ab27a9c8d2d40b3e80911dafb05a5fa18d1bac6b8d17"):
        SmallScream().prepare()
    known = hashlib.sha256(colourful.read_bytes()).hexdigest()
    monkeypatch.setattr(dsprites, "SCREAM", replace(dsprites.SCREAM, sha256=known))
    dataset = SmallScream()
    assert not dataset.is_prepared()
    assert dataset[0][0].shape == (3, 64, 64)
    assert SmallScream().is_prepared()


def test_the_painting_to_download_is_the_shared_one(shared_data: Path) -> None:
    painting = shared_data / "scream" / "scream.jpg"
    if not painting.exists():
        pytest.skip("no painting in the shared data")
    assert hashlib.sha256(painting.read_bytes()).hexdigest() == dsprites.SCREAM.sha256
