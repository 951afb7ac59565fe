import copy
import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from unknot.clevr_objects import OBJECT_SIZE
from unknot.datamodules.published.clevr import CLEVR
from unknot.datamodules.scenes.clevr_scenes import draw_masks, draw_scenes, sample_scenes
from unknot.datamodules.scenes.layout import Scenes, fit_camera
from unknot.datamodules.scenes.raycast import look_at, project

FRAME = (64, 96)


def write_image(path: Path, image: np.ndarray, mode: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image).convert(mode).save(path)


def write_clevr(root: Path, scenes: list[dict[str, Any]], images: np.ndarray, mode: str = "RGBA") -> Path:
    """CLEVR's folder, with images ``[N, H, W, 3]``."""
    for scene, image in zip(scenes, images, strict=True):
        write_image(root / "images" / "train" / scene["image_filename"], image, mode)
    listing = root / "scenes" / "CLEVR_train_scenes.json"
    listing.parent.mkdir(parents=True)
    info = {"split": "train", "license": "CC BY 4.0", "version": "1.0", "date": "2/14/2017"}
    listing.write_text(json.dumps({"info": info, "scenes": scenes}))
    return root


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Six scenes of 3 to 8 objects in CLEVR's folder, with masks."""
    generator = torch.Generator().manual_seed(0)
    parts = [sample_scenes(1, generator, count, count, FRAME) for count in range(3, 9)]
    annotations = []
    images, masks = [], []
    for number, part in enumerate(parts):
        (scene,) = part.annotations(FRAME)
        annotations.append(scene | {"image_index": number, "image_filename": f"CLEVR_train_{number:06d}.png"})
        image, mask = draw_scenes(part, FRAME, frame=FRAME)
        images.append(image)
        masks.append(mask)
    image, mask = torch.cat(images), torch.cat(masks)
    root = write_clevr(tmp_path_factory.mktemp("clevr"), annotations, image.permute(0, 2, 3, 1).numpy())
    for scene, values in zip(annotations, mask.numpy(), strict=True):
        write_image(root / "masks" / "train" / scene["image_filename"], values, "L")
    return root, annotations, image, mask


@pytest.fixture
def folder(drawn: Any, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    return Path(shutil.copytree(drawn[0], tmp_path / "clevr"))


def rewrite(folder: Path, change: Any) -> Path:
    listing = folder / "scenes" / "CLEVR_train_scenes.json"
    content = json.loads(listing.read_text())
    change(content)
    listing.write_text(json.dumps(content))
    return listing


def test_targets_are_in_the_order_of_the_reference() -> None:
    scene = {
        "objects": [
            {
                "size": "large",
                "material": "metal",
                "shape": "sphere",
                "color": "brown",
                "3d_coords": [-3.0, 0.0, 0.7],
                "rotation": 10.0,
                "pixel_coords": [1, 2, 3.0],
            },
            {
                "size": "small",
                "material": "rubber",
                "shape": "cylinder",
                "color": "cyan",
                "3d_coords": [1.5, 3.0, 0.35],
            },
        ]
    }
    targets = Scenes.from_annotations([scene]).targets(max_objects=4)
    assert targets.shape == (1, 4, OBJECT_SIZE) == (1, 4, 19)
    #         x    y    z            small large rubber metal cube sphere cylinder
    first = [0.0, 0.5, 3.7 / 6, 0, 1, 0, 1, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1]
    second = [0.75, 1.0, 3.35 / 6, 1, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 1]
    wanted = torch.tensor([first, second, [0.0] * 19, [0.0] * 19])
    assert torch.allclose(targets[0], wanted, atol=1e-6)


@pytest.mark.parametrize(
    ("attribute", "names", "start"),
    [
        ("size", ["small", "large"], 3),
        ("material", ["rubber", "metal"], 5),
        ("shape", ["cube", "sphere", "cylinder"], 7),
        ("color", ["gray", "blue", "brown", "yellow", "red", "green", "purple", "cyan"], 10),
    ],
)
def test_every_class_has_its_place(attribute: str, names: list[str], start: int) -> None:
    base = {"size": "small", "material": "rubber", "shape": "cube", "color": "gray", "3d_coords": [0, 0, 0.35]}
    targets = Scenes.from_annotations([{"objects": [base | {attribute: name}]} for name in names]).targets()
    assert torch.equal(targets[:, 0, start : start + len(names)], torch.eye(len(names)))


def test_scenes_survive_the_way_through_annotations() -> None:
    scenes = sample_scenes(20, torch.Generator().manual_seed(1))
    again = Scenes.from_annotations(json.loads(json.dumps(scenes.annotations())))
    assert torch.equal(again.targets(10), scenes.targets())
    assert torch.equal(again.rotation[again.real], scenes.rotation[scenes.real])
    assert (again.camera - scenes.camera).norm(dim=1).max() < 0.05  # pixel_coords are rounded
    assert (draw_masks(again, 128) != draw_masks(scenes, 128)).float().mean() < 2e-3


def test_the_camera_is_found_from_three_points_or_none() -> None:
    generator = torch.Generator().manual_seed(2)
    position = torch.tensor([7.4811, -6.5076, 5.3437]) + torch.rand(50, 3, generator=generator) - 0.5
    points = 6 * torch.rand(50, 3, 3, generator=generator) - 3
    seen = project(look_at(position.double(), focal=(35 / 32, 35 / 32 * 1.5)), points.double(), (320, 480))
    assert torch.allclose(fit_camera(points, seen), position, atol=1e-4)
    seen[:, 1] = torch.nan
    assert torch.allclose(fit_camera(points, seen), position, atol=1e-3)
    nothing = fit_camera(points, torch.full_like(seen, torch.nan))
    start = torch.tensor([7.4811, -6.5076, 5.3437])
    assert torch.allclose(nothing, start.expand(50, 3))
    for scale in (1e2, 1e6, 1e12):  # nonsense gives some camera, but a finite one that is not far off
        nonsense = fit_camera(points, scale * torch.randn(50, 3, 3, generator=generator))
        assert (nonsense - start).abs().max() <= 1 + 1e-5


def test_the_sample_of_the_original(shared_data: Path) -> None:
    root = shared_data / "clevr_sample"
    dataset = CLEVR(root, image_size=(320, 480))
    assert len(dataset) == 90
    raw = json.loads((root / "scenes" / "CLEVR_train_scenes.json").read_text())["scenes"]
    assert dataset.scenes.real.sum(1).tolist() == [len(scene["objects"]) for scene in raw]
    assert not dataset.masks

    # Attributes and coordinates, read back from the targets.
    names = {
        "size": (3, ["small", "large"]),
        "material": (5, ["rubber", "metal"]),
        "shape": (7, ["cube", "sphere", "cylinder"]),
        "color": (10, ["gray", "blue", "brown", "yellow", "red", "green", "purple", "cyan"]),
    }
    images, targets, masks = dataset.batch(range(90))
    assert masks is None
    assert targets.shape == (90, 10, 19)
    for i, scene in enumerate(raw):
        for j, thing in enumerate(scene["objects"]):
            row = targets[i, j]
            assert torch.allclose(6 * row[:3] - 3, torch.tensor(thing["3d_coords"]), atol=1e-5)
            for name, (start, classes) in names.items():
                assert classes[int(row[start : start + len(classes)].argmax())] == thing[name]
        assert (targets[i, len(scene["objects"]) :] == 0).all()

    # Pixels are those of the image that the scene names.
    pixels = np.array(Image.open(root / "images" / "train" / raw[7]["image_filename"]))
    assert pixels.shape == (320, 480, 4)
    assert torch.equal((255 * images[7]).round().byte(), torch.from_numpy(pixels[..., :3]).permute(2, 0, 1))

    # The reference camera lands within a pixel of where CLEVR says that objects are.
    seen = project(dataset.scenes.view(), dataset.scenes.coords, (320, 480))
    for i, scene in enumerate(raw):
        wanted = torch.tensor([thing["pixel_coords"] for thing in scene["objects"]])
        error = (seen[i, : len(wanted)] - wanted).abs()
        assert error[:, :2].max() < 1
        assert error[:, 2].max() < 0.01
    offset = dataset.scenes.camera - torch.tensor([7.4811, -6.5076, 5.3437])
    assert offset.abs().max() < 0.51


def test_fewer_objects_in_the_sample(shared_data: Path) -> None:
    six = CLEVR(shared_data / "clevr_sample", max_objects=6, image_size=32)
    everything = CLEVR(shared_data / "clevr_sample", image_size=32)
    assert len(six) == int((everything.scenes.real.sum(1) <= 6).sum())
    assert six.batch([0, 1]).targets.shape == (2, 6, 19)
    assert len(CLEVR(shared_data / "clevr_sample", split="val")) == 1


@pytest.mark.parametrize("mode", ["RGBA", "RGB", "P"])
def test_pixels_keep_their_place_and_channel(tmp_path: Path, mode: str) -> None:
    image = np.zeros((4, 6, 3), dtype=np.uint8)
    image[0, 0], image[0, 5], image[3, 0], image[2, 3] = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)
    thing = {"size": "small", "material": "rubber", "shape": "cube", "color": "gray", "3d_coords": [0, 0, 0.35]}
    write_clevr(tmp_path, [{"image_filename": "CLEVR_train_000000.png", "objects": [thing]}], image[None], mode)
    dataset = CLEVR(tmp_path, image_size=(4, 6))
    example = dataset[0]
    assert example.images.dtype == torch.float32
    assert torch.equal(example.images, torch.from_numpy(image).permute(2, 0, 1) / 255)
    assert example.masks is None
    signed = CLEVR(tmp_path, image_size=(4, 6), value_range=(-1, 1))[0].images
    assert torch.allclose(signed, 2 * example.images - 1)


def test_the_whole_frame_is_squeezed(drawn: Any) -> None:
    root, _, images, _ = drawn
    smooth, rough = (CLEVR(root, image_size=32, antialias=antialias).batch([2]).images for antialias in (True, False))
    exact = torch.nn.functional.interpolate(images[2:3].float(), (32, 32), mode="bilinear", antialias=True) / 255
    assert torch.allclose(smooth, exact, atol=0.51 / 255)
    exact = torch.nn.functional.interpolate(images[2:3].float(), (32, 32), mode="bilinear") / 255
    assert torch.allclose(rough, exact, atol=0.51 / 255)
    assert (smooth - rough).abs().max() > 0.05


def test_masks_are_read_where_there_are_some(drawn: Any) -> None:
    root, _, _, masks = drawn
    dataset = CLEVR(root, image_size=FRAME)
    batch = dataset.batch([0, 3])
    assert batch.masks is not None
    assert torch.equal(batch.masks, masks[[0, 3]])
    small = CLEVR(root, image_size=(32, 48)).batch([0]).masks
    assert small is not None
    assert set(small.unique().tolist()) <= {0, 1, 2, 3}
    assert CLEVR(root, masks=False)[0].masks is None
    # They can be drawn instead, from what the scenes say.
    found = draw_masks(dataset.scenes, FRAME, frame=FRAME)
    assert (found != masks).float().mean() < 5e-3


def test_a_part_of_the_frame_may_be_chosen(drawn: Any, empty_cache: Path) -> None:
    root, _, images, masks = drawn
    height, width = FRAME
    box = (height // 8, height - 2, 5, width // 2)
    part = CLEVR(root, image_size=(box[1] - box[0], box[3] - box[2]), crop=box)
    top, bottom, left, right = box
    batch = part.batch(range(6))
    assert torch.equal((batch.images * 255).round(), images[:, :, top:bottom, left:right].float())
    assert batch.masks is not None
    assert torch.equal(batch.masks, masks[:, top:bottom, left:right])
    kept = CLEVR(root, image_size=part.image_size, crop=box, cached=True).batch(range(6))
    assert torch.equal(kept.images, batch.images)
    for wrong in ((0, height + 1, 0, 5), (5, 5, 0, 5), (0, 5, 0), "middle"):
        with pytest.raises(ValueError, match=r"crop must be four whole numbers \(top, bottom, left, right\)"):
            CLEVR(root, crop=wrong)  # type: ignore[arg-type]


def test_a_damaged_file_of_the_cache_is_made_anew(drawn: Any, empty_cache: Path) -> None:
    def read() -> Tensor:
        return CLEVR(drawn[0], image_size=16, cached=True).batch([0, 5]).images

    whole = read()
    (file,) = empty_cache.glob("clevr-*.npy")
    content = bytearray(file.read_bytes())
    content[-3] ^= 0xFF
    file.write_bytes(content)
    assert torch.equal(read(), whole)


def test_layouts_are_those_of_the_images(drawn: Any) -> None:
    root, annotations, images, _ = drawn
    dataset = CLEVR(root, max_objects=5, image_size=FRAME)
    assert len(dataset) == 3
    assert dataset.frame == FRAME
    assert [path.name for path in dataset.paths] == [scene["image_filename"] for scene in annotations[:3]]
    assert torch.equal((255 * dataset.batch([0, 1, 2]).images).round().byte(), images[:3])
    assert torch.equal(dataset[1].targets[:, 18], torch.tensor([1.0, 1, 1, 1, 0]))
    with pytest.raises(IndexError):
        dataset[3]


def test_converted_images_are_the_same(drawn: Any, empty_cache: Path) -> None:
    root = drawn[0]
    plain, cached = (CLEVR(root, image_size=16, cached=cached).batch([0, 5, 2]) for cached in (False, True))
    assert all(torch.equal(a, b) for a, b in zip(plain, cached, strict=True))
    (file,) = empty_cache.glob("[!.]*")
    made = file.stat().st_mtime_ns
    again = CLEVR(root, image_size=16, cached=True)
    again.prepare()
    assert file.stat().st_mtime_ns == made
    assert torch.equal(pickle.loads(pickle.dumps(again)).batch([2]).images, plain.images[2:])
    without = CLEVR(root, image_size=16, cached=True, masks=False).batch([5])
    assert without.masks is None
    assert torch.equal(without.images, plain.images[1:2])


def test_a_changed_image_is_converted_again(folder: Path, empty_cache: Path) -> None:
    before = CLEVR(folder, image_size=16, cached=True).batch([0]).images
    write_image(folder / "images" / "train" / "CLEVR_train_000000.png", np.zeros((*FRAME, 3), np.uint8), "RGB")
    after = CLEVR(folder, image_size=16, cached=True).batch([0]).images
    assert before.max() > 0
    assert after.max() == 0


def test_a_damaged_image_stops_the_conversion_and_leaves_nothing(folder: Path, empty_cache: Path) -> None:
    path = folder / "images" / "train" / "CLEVR_train_000004.png"
    path.write_bytes(path.read_bytes()[:200])
    dataset = CLEVR(folder, image_size=16, cached=True)
    with pytest.raises(ValueError, match=r"CLEVR_train_000004\.png: not a readable image"):
        dataset.prepare()
    assert list(empty_cache.glob("[!.]*")) == []


def one_line(error: Exception, *parts: str) -> None:
    text = str(error)
    assert "\n" not in text
    for part in parts:
        assert part in text


@pytest.mark.parametrize("cut", [0, 1, 300, -1])
def test_a_truncated_listing(folder: Path, cut: int) -> None:
    listing = folder / "scenes" / "CLEVR_train_scenes.json"
    listing.write_bytes(listing.read_bytes()[:cut])
    with pytest.raises(ValueError, match="not whole JSON") as error:
        CLEVR(folder)
    one_line(error.value, str(listing), "again")


@pytest.mark.parametrize("content", ["[]", "3", '{"scenes": 3}', '{"scenes": [3]}', "{}"])
def test_a_listing_of_something_else(folder: Path, content: str) -> None:
    listing = folder / "scenes" / "CLEVR_train_scenes.json"
    listing.write_text(content)
    with pytest.raises(ValueError, match="not a file of CLEVR scenes") as error:
        CLEVR(folder)
    one_line(error.value, str(listing))


@pytest.mark.parametrize("keep", [0, 10, 60, 2000])
def test_a_truncated_image(folder: Path, keep: int) -> None:
    path = folder / "images" / "train" / "CLEVR_train_000003.png"
    path.write_bytes(path.read_bytes()[:keep])
    dataset = CLEVR(folder, image_size=FRAME)
    assert dataset[0].images.shape == (3, *FRAME)
    with pytest.raises(ValueError, match="not a readable image") as error:
        dataset.batch([2, 3])
    one_line(error.value, str(path))


def test_an_image_that_is_listed_but_absent(folder: Path) -> None:
    path = folder / "images" / "train" / "CLEVR_train_000002.png"
    path.unlink()
    with pytest.raises(FileNotFoundError) as error:
        CLEVR(folder)
    one_line(error.value, str(path), "listed", "absent", "skip_missing=True")
    kept = CLEVR(folder, skip_missing=True)
    assert len(kept) == 5
    assert kept.scenes.real.sum(1).tolist() == [3, 4, 6, 7, 8]


def test_an_image_without_a_scene(folder: Path) -> None:
    rewrite(folder, lambda content: content["scenes"].pop(1))
    with pytest.raises(ValueError, match="no scene in") as error:
        CLEVR(folder)
    one_line(error.value, str(folder / "images" / "train" / "CLEVR_train_000001.png"))
    assert len(CLEVR(folder, skip_missing=True)) == 5


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("color", "mauve", "color 'mauve' is not one of gray, blue"),
        ("shape", "torus", "shape 'torus' is not one of cube"),
        ("size", 3, "size 3 is not one of small"),
        ("material", None, "material None is not one of rubber"),
        ("3d_coords", [1.0, 2.0], "expected 3 finite numbers"),
        ("3d_coords", [1.0, 2.0, "x"], "could not convert"),
        ("3d_coords", None, "not iterable"),
        ("3d_coords", [1.0, 2.0, float("nan")], "expected 3 finite numbers"),
        ("pixel_coords", [1], "expected 3 finite numbers"),
        ("rotation", "east", "could not convert"),
    ],
)
def test_a_damaged_object(folder: Path, key: str, value: Any, message: str) -> None:
    listing = rewrite(folder, lambda content: content["scenes"][4]["objects"][2].update({key: value}))
    with pytest.raises(ValueError, match=message) as error:
        CLEVR(folder)
    one_line(error.value, str(listing), "CLEVR_train_000004.png", "object 2")


@pytest.mark.parametrize("key", ["color", "shape", "size", "material", "3d_coords"])
def test_an_object_that_lacks_something(folder: Path, key: str) -> None:
    listing = rewrite(folder, lambda content: content["scenes"][4]["objects"][2].pop(key))
    with pytest.raises(ValueError, match=f"'{key}' is missing") as error:
        CLEVR(folder)
    one_line(error.value, str(listing), "CLEVR_train_000004.png", "object 2")


def test_scenes_that_lack_something(folder: Path) -> None:
    original = copy.deepcopy(json.loads((folder / "scenes" / "CLEVR_train_scenes.json").read_text()))
    listing = rewrite(folder, lambda content: content["scenes"][4].pop("objects"))
    with pytest.raises(ValueError, match="scene 4 has no list of objects") as error:
        CLEVR(folder)
    one_line(error.value, str(listing))
    listing.write_text(json.dumps(original))
    rewrite(folder, lambda content: content["scenes"][3].pop("image_filename"))
    with pytest.raises(ValueError, match="scene 3 has no image_filename") as error:
        CLEVR(folder)
    one_line(error.value, str(listing))


def test_what_is_not_there(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as error:
        CLEVR(tmp_path / "nowhere")
    one_line(error.value, str(tmp_path / "nowhere" / "scenes" / "CLEVR_train_scenes.json"))
    with pytest.raises(FileNotFoundError, match="the test split was published without"):
        CLEVR(folder, split="test")
    shutil.rmtree(folder / "masks")
    with pytest.raises(FileNotFoundError, match="no such mask") as error:
        CLEVR(folder, masks=True)
    one_line(error.value, str(folder / "masks" / "train" / "CLEVR_train_000000.png"), "masks=False")
    assert not CLEVR(folder).masks
    with pytest.raises(ValueError, match="no scene with at most 2 objects"):
        CLEVR(folder, max_objects=2)
    shutil.rmtree(folder / "images")
    with pytest.raises(FileNotFoundError, match="no such folder"):
        CLEVR(folder)


@pytest.mark.parametrize("damage", ["many", "color", "cut"])
def test_a_damaged_mask(folder: Path, damage: str) -> None:
    path = folder / "masks" / "train" / "CLEVR_train_000000.png"
    if damage == "many":
        write_image(path, np.full(FRAME, 4, np.uint8), "L")  # of three objects
    elif damage == "color":
        write_image(path, np.zeros((*FRAME, 3), np.uint8), "RGB")
    else:
        path.write_bytes(path.read_bytes()[:60])
    dataset = CLEVR(folder, image_size=16)
    assert dataset[1].masks is not None
    with pytest.raises(ValueError, match=r"not a (mask|readable)") as error:
        dataset[0]
    one_line(error.value, str(path))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_objects": 0}, "max_objects must be a whole number of at least 1, got 0"),
        ({"image_size": (0, 3)}, "image_size must be a positive whole number"),
        ({"value_range": (0, 0)}, "value_range must be two numbers"),
    ],
)
def test_bad_options_are_refused(drawn: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CLEVR(drawn[0], **options)


def test_a_target_needs_enough_rows() -> None:
    scenes = sample_scenes(2, torch.Generator().manual_seed(0), 5, 5)
    with pytest.raises(ValueError, match="more than 4 objects"):
        scenes.targets(4)
    assert scenes.targets(7).shape == (2, 7, 19)
