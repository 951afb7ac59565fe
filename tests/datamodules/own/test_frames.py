from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.stats import chisquare
from torch import Tensor

from unknot.datamodules import FramePairDataModule
from unknot.lightning import pl

pytestmark = pytest.mark.usefixtures("empty_cache")

Pairs = list[tuple[int, int]]


def video(length: int, start: int = 0, size: tuple[int, int] = (4, 5)) -> Tensor:
    """uint8 ``[T, 3, H, W]``; the red of every frame is its number."""
    frames = torch.zeros(length, 3, *size, dtype=torch.uint8)
    frames[:, 0] = torch.arange(start, start + length)[:, None, None]
    return frames


def write(folder: Path, numbers: Any, name: str = "frame{}.png", size: tuple[int, int] = (12, 10)) -> Path:
    """Images whose red is their number."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in numbers:
        Image.new("RGB", size, (number, 0, 0)).save(folder / name.format(number))
    return folder


def module(frames: Any, **options: Any) -> FramePairDataModule:
    return FramePairDataModule(frames, **{"batch_size": 200, "seed": 0} | options)


def numbers(batch: tuple[Tensor, Tensor]) -> Pairs:
    """Numbers of the frames of every pair."""
    first, second = ((images[:, 0] * 255).round().long() for images in batch)
    for images in (first, second):
        assert (images == images[:, :1, :1]).all()
    return list(zip(first[:, 0, 0].tolist(), second[:, 0, 0].tolist(), strict=True))


def training(data: FramePairDataModule, epochs: int = 3) -> Pairs:
    loader = data.train_dataloader()
    return [pair for _ in range(epochs) for batch in loader for pair in numbers(batch)]


def validation(data: FramePairDataModule) -> Pairs:
    return [pair for batch in data.val_dataloader() for pair in numbers(batch)]


def neighbours(start: int, stop: int, gap: int = 1) -> set[tuple[int, int]]:
    """All pairs of frames from ``start`` on and before ``stop``."""
    return {(number, number + gap) for number in range(start, stop - gap)}


def one_line(refused: pytest.ExceptionInfo[BaseException]) -> str:
    message = str(refused.value)
    assert "\n" not in message
    return message


FORMS = {
    "tensor": lambda frames: frames,
    "numpy": lambda frames: frames.numpy(),
    "channels last": lambda frames: frames.permute(0, 2, 3, 1),
    "numpy, channels last": lambda frames: frames.permute(0, 2, 3, 1).contiguous().numpy(),
    "floats": lambda frames: frames / 255,
    "doubles": lambda frames: (frames.double() / 255).numpy(),
    "halves, channels last": lambda frames: (frames / 255).half().permute(0, 2, 3, 1),
    "list": lambda frames: [frames],
    "tuple": lambda frames: (frames.numpy(),),
}


@pytest.mark.parametrize("form", FORMS)
def test_arrays_of_many_forms(form: str) -> None:
    data = module(FORMS[form](video(40)))
    first, second = next(iter(data.train_dataloader()))
    assert first.shape == second.shape == (35, 3, 4, 5)
    assert first.dtype == second.dtype == torch.float32
    assert set(training(data)) == neighbours(0, 36)
    assert set(validation(data)) == neighbours(36, 40)


@pytest.mark.parametrize("channels", [1, 3])
def test_channels_are_found_on_either_side(channels: int) -> None:
    frames = torch.rand(20, channels, 6, 7)
    for form in (frames, frames.permute(0, 2, 3, 1)):
        first, _ = next(iter(module(form).train_dataloader()))
        assert first.shape == (17, channels, 6, 7)
        assert set(map(tuple, first.flatten(1).tolist())) == set(map(tuple, frames[:17].flatten(1).tolist()))


def test_bytes_become_parts_of_one() -> None:
    frames = torch.tensor([0, 51, 255, 102] * 3, dtype=torch.uint8)[:, None, None, None].expand(12, 1, 2, 2)
    first, _ = next(iter(module(frames).train_dataloader()))
    assert set(first.flatten().tolist()) == set((torch.tensor([0, 51, 102, 255]) / 255).tolist())


def test_floats_stay_as_they_are() -> None:
    frames = torch.rand(20, 1, 2, 2)
    first, second = next(iter(module(frames).train_dataloader()))
    found = (frames.flatten(1)[:, None] == first.flatten(1)).all(2).int().argmax(0)
    assert torch.equal(first, frames[found])
    assert torch.equal(second, frames[found + 1])


@pytest.mark.parametrize("gap", [1, 2, 7])
def test_pairs_are_a_gap_apart(gap: int) -> None:
    data = module(video(60), gap=gap)
    held_out = max(6, gap + 1)
    assert set(training(data, 5)) == neighbours(0, 60 - held_out, gap)
    assert set(validation(data)) == neighbours(60 - held_out, 60, gap)


def test_a_range_of_gaps_is_drawn_evenly() -> None:
    """Every start with every gap is as probable."""
    data = module(video(20), gap=(2, 5))
    found = Counter(training(data, 600))
    possible = {(first, first + gap) for first in range(20 - 6 - 5) for gap in range(2, 6)}
    assert found.keys() == possible
    assert chisquare([found[pair] for pair in possible]).pvalue > 1e-4
    assert {second - first for first, second in validation(data)} <= {2, 3, 4, 5}
    assert validation(data) == validation(module(video(20), gap=(2, 5), seed=1))


def test_a_range_of_one_gap_is_that_gap() -> None:
    assert training(module(video(30), gap=(3, 3))) == training(module(video(30), gap=3))


@pytest.mark.parametrize(
    ("length", "gap", "fraction", "held_out"),
    [
        (100, 1, 0.1, 10),
        (100, 1, 0.25, 25),
        (41, 1, 0.1, 5),
        (100, (1, 15), 0.1, 16),
        (12, (1, 2), 0.1, 3),
        (4, 1, 0.1, 2),
    ],
)
def test_the_last_frames_are_held_out(length: int, gap: Any, fraction: float, held_out: int) -> None:
    """At least as many as one pair takes; no pair lies on both sides."""
    data = module(video(length), gap=gap, val_fraction=fraction)
    trained = {frame for pair in training(data, 60) for frame in pair}
    assert trained == set(range(length - held_out))
    held = {frame for pair in validation(data) for frame in pair}
    assert held <= set(range(length - held_out, length))
    longest = gap if isinstance(gap, int) else gap[1]
    assert {first for first, _ in validation(data)} == set(range(length - held_out, length - longest))


def test_pairs_never_cross_videos() -> None:
    data = module([video(20), video(30, start=100), video(10, start=200)])
    assert set(training(data, 5)) == neighbours(0, 18) | neighbours(100, 127) | neighbours(200, 208)
    assert set(validation(data)) == neighbours(18, 20) | neighbours(127, 130) | neighbours(208, 210)


def test_an_epoch_has_every_pair_of_every_video_once_in_a_new_order() -> None:
    data = module([video(20), video(30, start=100)], batch_size=8)
    loader = data.train_dataloader()
    assert len(loader) == 6
    epochs = [[pair for batch in loader for pair in numbers(batch)] for _ in range(3)]
    assert all(sorted(epoch) == sorted(neighbours(0, 18) | neighbours(100, 127)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    assert len(module(video(20), batch_size=8, drop_last=True).train_dataloader()) == 2


def test_a_folder_is_read_in_natural_order(tmp_path: Path) -> None:
    """frame2 before frame10, which a sort by characters would put the other way round."""
    write(tmp_path, range(1, 31))
    for folder in (tmp_path, str(tmp_path)):
        data = module(folder, image_size=(8, 8))
        assert set(training(data)) == neighbours(1, 28)
        assert set(validation(data)) == neighbours(28, 31)


@pytest.mark.parametrize("name", ["{}.png", "take3_{}.png", "cam 1 - {:03d}.PNG", "{}_left.tif", "img{}v2.bmp"])
def test_numbers_may_stand_anywhere_in_the_name(tmp_path: Path, name: str) -> None:
    write(tmp_path, range(8, 28), name)
    assert set(training(module(tmp_path))) == neighbours(8, 26)


def test_names_with_and_without_numbers_mix(tmp_path: Path) -> None:
    write(tmp_path, range(1, 20))
    write(tmp_path, [100], "frame.png")
    write(tmp_path, [200], "10.png")
    assert set(training(module(tmp_path))) > neighbours(1, 17)


def test_a_folder_of_folders_is_a_video_each(tmp_path: Path) -> None:
    write(tmp_path / "take2", range(20))
    write(tmp_path / "take10", range(100, 110))
    data = module(tmp_path)
    assert set(training(data)) == neighbours(0, 18) | neighbours(100, 108)
    assert set(validation(data)) == neighbours(18, 20) | neighbours(108, 110)


def test_other_files_are_ignored(tmp_path: Path) -> None:
    write(tmp_path, range(10))
    for name in (".DS_Store", "Thumbs.db", "notes.txt", "labels.csv", "frame3", "frame4.png.part", "meta.json"):
        (tmp_path / name).write_bytes(b"not an image")
    assert set(training(module(tmp_path))) == neighbours(0, 8)


def test_other_files_beside_folders_are_ignored(tmp_path: Path) -> None:
    write(tmp_path / "take", range(10))
    (tmp_path / "README.md").write_text("ten frames")
    assert set(training(module(tmp_path))) == neighbours(0, 8)


@pytest.mark.parametrize("size", [(64, 64), (6, 9), (30, 2)])
def test_images_are_resized(tmp_path: Path, size: tuple[int, int]) -> None:
    """To (height, width): the left is black, the right is white."""
    picture = np.zeros((20, 40), dtype=np.uint8)
    picture[:, 20:] = 255
    for number in range(4):
        Image.fromarray(picture).save(tmp_path / f"{number}.png")
    first, _ = next(iter(module(tmp_path, image_size=size).train_dataloader()))
    assert first.shape[1:] == (3, *size)
    assert module(tmp_path, image_size=size).image_shape == (3, *size)
    assert (first[..., 0] < 0.2).all()
    assert (first[..., -1] > 0.8).all()


def test_by_default_images_suit_the_zoo(tmp_path: Path) -> None:
    first, _ = next(iter(module(write(tmp_path, range(5))).train_dataloader()))
    assert first.shape == (2, 3, 64, 64)


def test_images_of_the_right_size_keep_their_pixels(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (12, 6, 5, 3), dtype=np.uint8)
    for number, frame in enumerate(pixels):
        Image.fromarray(frame).save(tmp_path / f"{number}.png")
    from_folder, from_array = module(tmp_path, image_size=(6, 5)), module(pixels)
    for one, other in zip(from_folder.val_dataloader(), from_array.val_dataloader(), strict=True):
        assert all(torch.equal(*images) for images in zip(one, other, strict=True))


def test_grayscale(tmp_path: Path) -> None:
    """Luma as ITU-R 601 has it."""
    for number in range(6):
        Image.new("RGB", (8, 8), (100, 50, 200)).save(tmp_path / f"{number}.png")
    first, second = next(iter(module(tmp_path, grayscale=True).train_dataloader()))
    assert first.shape == second.shape == (3, 1, 64, 64)
    luma = (0.299 * 100 + 0.587 * 50 + 0.114 * 200) / 255
    assert torch.allclose(first, torch.tensor(luma), atol=1 / 255)


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "1"])
def test_images_of_other_modes(tmp_path: Path, mode: str) -> None:
    for number in range(6):
        Image.new("RGB", (8, 8), (255, 255, 255)).convert(mode).save(tmp_path / f"{number}.png")
    for grayscale in (False, True):
        first, _ = next(iter(module(tmp_path, grayscale=grayscale).train_dataloader()))
        assert first.shape == (3, 1 if grayscale else 3, 64, 64)
        assert (first == 1).all()


def test_images_of_one_folder_may_differ_in_size(tmp_path: Path) -> None:
    write(tmp_path, range(5))
    write(tmp_path, range(5, 10), size=(33, 17))
    assert set(training(module(tmp_path))) == neighbours(0, 8)


def test_the_seed_sets_the_stream() -> None:
    first = training(module(video(100)))
    assert training(module(video(100))) == first
    assert training(module(video(100), seed=1)) != first
    held_out = validation(module(video(100)))
    assert validation(module(video(100), seed=1)) == held_out
    assert sorted(held_out) == sorted(neighbours(90, 100))


@pytest.mark.parametrize("kind", ["array", "folder"])
def test_the_number_of_workers_does_not_matter(tmp_path: Path, kind: str) -> None:
    frames = video(100) if kind == "array" else write(tmp_path, range(50))
    alone, together = (module(frames, gap=(1, 3), num_workers=workers) for workers in (0, 2))
    assert training(together, 5) == training(alone, 5)
    assert validation(together) == validation(alone)


def test_frames_are_decoded_once_upright_and_without_what_is_transparent(tmp_path: Path, empty_cache: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    for number in range(10):
        Image.fromarray(np.repeat(np.array([[0, 255]], dtype=np.uint8), 2, 0)).save(
            tmp_path / f"{number}.png", exif=exif
        )
    data = module(tmp_path, image_size=2)
    first, _ = next(iter(data.train_dataloader()))
    assert first[0, 0].tolist() == [[0, 0], [1, 1]]
    assert len(list(empty_cache.glob("*.npy"))) == 1
    clear = tmp_path / "clear"
    for number in range(10):
        clear.mkdir(exist_ok=True)
        Image.new("RGBA", (4, 4), (255, 0, 0, 0)).save(clear / f"{number}.png")
    first, _ = next(iter(module(clear, image_size=2, background="#003300").train_dataloader()))
    assert (first[0, :, 0, 0] * 255).tolist() == [0, 51, 0]


def test_both_images_of_a_pair_are_transformed_alike() -> None:
    from torchvision.transforms import v2

    frames = torch.rand(1, 3, 16, 16).expand(40, 3, 16, 16)
    data = module(frames, transform=v2.RandomCrop(8), val_transform=v2.CenterCrop(8))
    first, second = next(iter(data.train_dataloader()))
    assert data.image_shape == (3, 8, 8)
    assert torch.equal(first, second)
    assert len(first.flatten(1).unique(dim=0)) > 10
    again, _ = next(iter(module(frames, transform=v2.RandomCrop(8)).train_dataloader()))
    assert torch.equal(first, again)
    held_out, _ = next(iter(data.val_dataloader()))
    assert torch.equal(held_out, frames[:3, :, 4:12, 4:12])


def test_frames_are_not_changed() -> None:
    frames = np.random.default_rng(0).integers(0, 256, (20, 6, 5, 3), dtype=np.uint8)
    before = frames.copy()
    first, second = next(iter(module(frames).train_dataloader()))
    first.zero_()
    second.zero_()
    assert np.array_equal(frames, before)


def quiet_trainer(**options: Any) -> pl.Trainer:
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    return pl.Trainer(accelerator="cpu", enable_checkpointing=False, **quiet | options)


def test_a_model_of_the_zoo_trains_on_a_folder(tmp_path: Path) -> None:
    from unknot.zoo import AdaGVAE

    model = AdaGVAE(image_shape=(1, 32, 32))
    before = [parameter.detach().clone() for parameter in model.parameters()]
    data = module(write(tmp_path, range(0, 200, 10)), image_size=(32, 32), grayscale=True, batch_size=4)
    trainer = quiet_trainer(max_steps=2, limit_val_batches=1)
    trainer.fit(model, datamodule=data)
    assert trainer.global_step == 2
    assert not any(torch.equal(*pair) for pair in zip(before, model.parameters(), strict=True))
    assert all(parameter.isfinite().all() for parameter in model.parameters())
    losses = trainer.validate(model, datamodule=data, verbose=False)[0]
    assert losses
    assert np.isfinite(list(losses.values())).all()


def test_errors_come_before_the_first_step(tmp_path: Path) -> None:
    from unknot.zoo import AdaGVAE

    (tmp_path / "frame0.png").write_bytes(b"")
    with pytest.raises(ValueError, match=r"frame0\.png"):
        quiet_trainer(max_steps=1).fit(AdaGVAE(image_shape=(3, 64, 64)), datamodule=module(tmp_path))


def read(frames: Any, **options: Any) -> None:
    next(iter(module(frames, **options).train_dataloader()))


@pytest.mark.parametrize("damage", ["text", "empty", "cut short", "flipped bits"])
def test_a_damaged_image_is_named(tmp_path: Path, damage: str) -> None:
    write(tmp_path, range(10), size=(100, 100))
    bad = tmp_path / "frame7.png"
    noise = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    Image.fromarray(noise).save(bad)
    whole = bad.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 0xFF
    ruin = {"text": b"hello", "empty": b"", "cut short": whole[: len(whole) // 2], "flipped bits": bytes(flipped)}
    bad.write_bytes(ruin[damage])
    with pytest.raises(ValueError, match="Cannot read 1 of") as refused:
        read(tmp_path)
    assert f"{bad} (" in one_line(refused)
    assert one_line(refused).endswith("Repair or remove them.")


@pytest.mark.parametrize("kind", ["empty", "no images", "missing", "a file", "empty among others"])
def test_a_useless_folder_is_named(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "frames"
    if kind == "a file":
        folder.write_bytes(b"")
    elif kind != "missing":
        folder.mkdir()
    if kind == "no images":
        (folder / "notes.txt").write_text("none yet")
    if kind == "empty among others":
        write(tmp_path / "others", range(10))
    with pytest.raises(FileNotFoundError, match=r"no such file or folder|no images here") as refused:
        read(tmp_path if kind == "empty among others" else folder)
    assert one_line(refused).startswith(f"{folder}: ")


@pytest.mark.parametrize("gap", [1, 3, (1, 3)])
def test_too_short_videos_are_named(tmp_path: Path, gap: Any) -> None:
    least = 2 * (gap if isinstance(gap, int) else gap[1]) + 2
    read([video(40), video(least)], gap=gap)
    with pytest.raises(
        ValueError, match=f"Video 1 has {least - 1} frames, which leaves {least // 2 - 1} to train on"
    ) as refused:
        read([video(40), video(least - 1)], gap=gap)
    one_line(refused)
    write(tmp_path / "long", range(40))
    short = write(tmp_path / "short", range(least - 1))
    with pytest.raises(
        ValueError, match=f"has {least - 1} frames, .* takes {least // 2}, and as many held out"
    ) as refused:
        read(tmp_path, gap=gap)
    assert one_line(refused).startswith(f"{short} ")


@pytest.mark.parametrize(
    ("frames", "message"),
    [
        (torch.rand(20, 8, 8), r"torch.float32 of shape \[20, 8, 8\]"),
        (torch.rand(20, 3, 8, 8, 1), r"shape \[20, 3, 8, 8, 1\]"),
        (np.zeros((20, 8, 8, 3), dtype=np.int64), "torch.int64"),
        (torch.zeros(20, 3, 8, 8, dtype=torch.bool), "torch.bool"),
        (np.zeros((20, 3, 8, 8), dtype=np.uint16), "torch.uint16"),
        ([torch.rand(20, 3, 8, 8), torch.rand(20, 8, 8)], r"Video 1 .* shape \[20, 8, 8\]"),
        (torch.rand(20, 9, 8, 8), r"shape \[20, 9, 8, 8\]"),
        (torch.rand(20, 3, 0, 8), r"shape \[20, 3, 0, 8\]"),
        (None, "NoneType"),
        (np.array(["a", "b"], dtype=object), "ndarray"),
    ],
)
def test_arrays_that_are_no_videos_are_refused(frames: Any, message: str) -> None:
    with pytest.raises(ValueError, match=r"Video \d is .* expected \[N, C, H, W\]") as refused:
        read(frames)
    assert refused.match(message)
    one_line(refused)


@pytest.mark.parametrize(
    "other",
    [torch.rand(20, 1, 8, 8), torch.rand(20, 3, 8, 9)],
    ids=["channels", "size"],
)
def test_videos_that_differ_are_refused(other: Tensor) -> None:
    with pytest.raises(ValueError, match=r"Video 1 has .* they must be alike to share a batch") as refused:
        read([torch.rand(20, 3, 8, 8), other])
    one_line(refused)


def test_no_videos_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one video"):
        read([])


@pytest.mark.parametrize("gap", [0, -1, (3, 2), (0, 2), (-2, -1), 1.5, None, (1, 2, 3), "2", (1.5, 2)])
def test_an_impossible_gap_is_refused(gap: Any) -> None:
    with pytest.raises(ValueError, match="gap must be a positive whole number of frames or a range") as refused:
        module(video(20), gap=gap)
    assert one_line(refused).endswith(f"got {gap!r}.")


@pytest.mark.parametrize("fraction", [0, 1, -0.1, 1.5, float("nan")])
def test_an_impossible_split_is_refused(fraction: float) -> None:
    with pytest.raises(ValueError, match=f"val_fraction must lie between 0 and 1, got {fraction}"):
        module(video(20), val_fraction=fraction)


@pytest.mark.parametrize("size", [0, (8,), (0, 8), (-1, 8), (8.5, 8)])
def test_an_impossible_image_size_is_refused(size: Any) -> None:
    with pytest.raises(ValueError, match=r"image_size must be a positive whole number or \(height, width\)"):
        module(video(20), image_size=size)


@pytest.mark.parametrize(
    ("frames", "found"), [(torch.rand(20, 3, 8, 8) * 255, "to 25"), (torch.full((20, 3, 8, 8), torch.nan), "nan")]
)
def test_floats_outside_the_unit_interval_are_refused(frames: Tensor, found: str) -> None:
    with pytest.raises(ValueError, match=f"Video 0 has values from .*{found}.* divide by 255"):
        read(frames)


def test_four_channels_come_last_too() -> None:
    first, _ = next(iter(module(torch.rand(20, 8, 9, 4)).train_dataloader()))
    assert first.shape == (17, 4, 8, 9)


def test_a_reversed_array_is_taken() -> None:
    data = module(video(20).numpy()[::-1])
    assert set(training(data)) == {(second, first) for first, second in neighbours(2, 20)}


def test_a_list_of_folders(tmp_path: Path) -> None:
    data = module(
        [write(tmp_path / "one", range(20)), str(write(tmp_path / "two", range(100, 120)))], image_size=(4, 5)
    )
    assert set(training(data)) == neighbours(0, 18) | neighbours(100, 118)


def test_images_beside_folders_are_the_video(tmp_path: Path) -> None:
    write(tmp_path, range(20))
    write(tmp_path / "old", range(100, 120))
    write(tmp_path / ".thumbnails", range(200, 220))
    assert set(training(module(tmp_path, image_size=(4, 5)))) == neighbours(0, 18)


def test_hidden_files_and_folders_are_left_alone(tmp_path: Path) -> None:
    write(tmp_path / "video", range(20))
    write(tmp_path / ".thumbnails", range(200, 220))
    (tmp_path / "video" / "._frame1.png").write_bytes(b"resource fork")
    (tmp_path / "video" / "plan.pdf").write_bytes(b"%PDF-1.4")
    assert set(training(module(tmp_path, image_size=(4, 5)))) == neighbours(0, 18)


def test_sixteen_bits_are_scaled_and_not_clipped(tmp_path: Path) -> None:
    for number in range(20):
        Image.fromarray(np.full((10, 12), number << 8, dtype=np.uint16)).save(tmp_path / f"{number}.png")
    assert set(training(module(tmp_path, image_size=(4, 5)))) == neighbours(0, 18)


def test_any_failure_of_the_decoder_names_the_file(tmp_path: Path) -> None:
    write(tmp_path, range(20))
    bad = tmp_path / "frame7.png"
    whole = bytearray(bad.read_bytes())
    whole[8:12] = b"\x00\x00\x00\x01"  # an IHDR chunk of one byte: Pillow raises a ValueError of its own
    bad.write_bytes(whole)
    with pytest.raises(ValueError, match="Cannot read 1 of") as refused:
        read(tmp_path)
    assert f"{bad} (" in one_line(refused)
    assert one_line(refused).endswith("Repair or remove them.")


def test_a_large_held_out_part_is_named_as_the_cause() -> None:
    with pytest.raises(ValueError, match=r"which leaves 1 to train on; .* Lower gap or val_fraction"):
        read(video(10), val_fraction=0.9)


def test_names_with_odd_digits_are_sorted(tmp_path: Path) -> None:
    write(tmp_path, range(20))
    (tmp_path / "frame3.png").rename(tmp_path / "frame3²2.png")
    read(tmp_path)


def test_a_video_file_is_read_frame_by_frame(tmp_path: Path, empty_cache: Path) -> None:
    av = pytest.importorskip("av")
    path = tmp_path / "video.mkv"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("ffv1", rate=10)  # without loss
        stream.width, stream.height, stream.pix_fmt = 16, 16, "bgr0"
        for number in range(24):
            frame = av.VideoFrame.from_ndarray(np.full((16, 16, 3), number * 10, dtype=np.uint8), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    data = FramePairDataModule(path, gap=2, image_size=8, batch_size=4, seed=0)
    first, second = next(iter(data.train_dataloader()))
    assert ((second - first) * 255).round().unique().tolist() == [20.0]
    assert len(list(empty_cache.glob("*.npy"))) == 1
    (tmp_path / "broken.mp4").write_bytes(b"no video")
    with pytest.raises(ValueError, match="not a video that can be read") as caught:
        _ = FramePairDataModule(tmp_path / "broken.mp4").videos
    assert "\n" not in str(caught.value)
