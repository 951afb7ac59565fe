"""Shading of scenes: the ground with its shadows, and the reflections of rubber and metal.

Light is linear until it is stored. Lamps and ground were fitted by least squares to the median of 90 original images,
which shows no objects, and materials to the pixels of the objects. Shadows were set by eye, and so was the gloss of
metal, which the unknown jitter of the lamps blurs in a fit.
"""

import math

import torch
from torch import Tensor

from unknot.clevr_objects import COLORS, MATERIALS, RGB
from unknot.datamodules.scenes.layout import RADII, Scenes
from unknot.datamodules.scenes.raycast import Hits, Solids, normals, points, rays

LAMP_POWER = (5.52, 0.93, 1.09)  # light of key, fill and back lamp reflected by the ground
AMBIENT = 0.137
GROUND_TINT = (1.006, 1.0, 0.993)  # of stored values
SHADOW_BLUR = (1.0, 1.0, 1.0, 1.4)  # shadow of key, fill and back lamp and of the sky, in radii
SHADOW_STRENGTH = (1.5, 1.5, 1.5, 0.5)

# Reflection of rubber and metal, relative to the ground. Key, fill and back lamp:
DIFFUSE = ((1.5, 1.6, 3.0), (0.0, 0.47, 1.63))
GLOSS = ((0.15, 0.1, 0.35), (13.0, 10.0, 22.0))
# Light from above, from below and from all around; the mirrored ground:
SURROUNDINGS = ((0.0, 0.042, 0.124), (0.06, 0.0, 0.0))
MIRROR = (0.0, 0.81)
BEVEL = 0.16


def _srgb(light: Tensor) -> Tensor:
    """Convert linear light to stored values, with a lookup table."""
    return _SRGB.index_select(0, (light.flatten() * 4095).clamp(0, 4095).to(torch.int32)).view(light.shape)


_linear = torch.arange(4096) / 4095
_SRGB = torch.where(_linear <= 0.0031308, 12.92 * _linear, 1.055 * _linear ** (1 / 2.4) - 0.055)


def _lamp_light(lamps: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
    """Return unit vectors from points to area lamps that face the origin, and the light that arrives from there.

    ``lamps`` ``[..., 3]`` and ``points`` ``[..., 3]`` broadcast.
    """
    way = lamps - points
    squared = way.square().sum(-1)
    toward = way * squared.rsqrt()[..., None]
    facing = (toward * torch.nn.functional.normalize(lamps, dim=-1)).sum(-1).clamp(min=0)
    return toward, facing / squared


def ground(scenes: Scenes, size: tuple[int, int], frame: tuple[int, int]) -> Tensor:
    """Return stored values of the empty ground with the shadows of the objects: ``[B, 3, H, W]``."""
    # Shadows are soft: fewer pixels suffice.
    height, width = (max(min(math.ceil(side / 2), 48), math.ceil(side / 4)) for side in size)
    camera = scenes.view(frame)
    direction = rays(camera, (height, width)).flatten(1, 2)
    position = camera.position[:, None]
    points = position - position[..., 2:] / direction[..., 2:] * direction  # [B, P, 3]
    toward, light = _lamp_light(scenes.lamps[:, :, None], points[:, None])  # [B, 3, P, 3], [B, 3, P]
    light = light * toward[..., 2] * torch.tensor(LAMP_POWER)[:, None]
    light = torch.cat([light, torch.full_like(light[:, :1], AMBIENT)], dim=1)
    gray = _srgb((light * _lit(scenes, points)).sum(1)).view(-1, 1, height, width)
    gray = torch.nn.functional.interpolate(gray, size, mode="bilinear")
    return gray * torch.tensor(GROUND_TINT)[:, None, None]


def _lit(scenes: Scenes, points: Tensor) -> Tensor:
    """Return the share of light of each lamp and of the sky that reaches ground points ``[B, P, 3]``: ``[B, 4, P]``.

    Each object is a blurred ball: the share of light that passes it at distance d is exp(-strength * exp(-d² / blur²)).
    With one direction to the lamp for the whole shadow, d² is a quadratic function of the position on the ground: a
    matrix product for all.
    """
    b, m, _ = scenes.coords.shape
    toward = _lamp_light(scenes.lamps[:, None], scenes.coords[:, :, None])[0]
    toward = torch.cat([toward, torch.tensor([0.0, 0.0, 1.0]).expand(b, m, 1, 3)], dim=2)  # [B, M, 4, 3]
    x, y, z = toward.unbind(-1)
    cx, cy, cz = scenes.coords[:, :, None].unbind(-1)
    # |p - c|² - ((p - c) · toward)² for p = (px, py, 0), by powers of px and py.
    along = cx * x + cy * y + cz * z
    constant = cx * cx + cy * cy + cz * cz - along * along
    quadratic = torch.stack(
        [constant, 2 * (along * x - cx), 2 * (along * y - cy), 1 - x * x, -2 * x * y, 1 - y * y], dim=-1
    )
    blur = torch.tensor(RADII)[scenes.size][..., None] * torch.tensor(SHADOW_BLUR)
    px, py = points[..., 0], points[..., 1]
    powers = torch.stack([torch.ones_like(px), px, py, px * px, px * py, py * py], dim=1)
    exponent = (-quadratic / blur.square()[..., None]).transpose(1, 2).flatten(1, 2) @ powers  # [B, 4 M, P]
    strength = torch.where(scenes.real[:, None], torch.tensor(SHADOW_STRENGTH)[:, None], 0.0)
    # Without shadow, exp would return denormal numbers, which are slow.
    return exponent.clamp_(min=-20).exp_().view(b, 4, m, -1).mul_(strength[..., None]).sum(2).neg_().exp_()


def shade(scenes: Scenes, solids: Solids, hits: Hits) -> Tensor:
    """Return stored values of the hits, and a 1: ``[V, 4]``.

    Rubber is matte with a broad, weak, white sheen. Metal mirrors, in its own colour, the lamps, the ground and a dark
    sky.
    """
    real, metal = scenes.real, MATERIALS.index("metal")
    material = scenes.material[real]
    albedo = torch.tensor([RGB[name] for name in COLORS])[scenes.color[real]] / 255
    lamps = scenes.lamps[solids.scene]
    toward, light = _lamp_light(lamps, solids.centre[:, None])  # [K, 3, 3], [K, 3]
    light = light * torch.tensor(LAMP_POWER)
    standing = solids.centre * torch.tensor([1.0, 1.0, 0.0])
    below, ground = _lamp_light(lamps, standing[:, None])
    table = [
        toward.flatten(1),
        light * torch.tensor(DIFFUSE)[material],
        light * torch.tensor(GLOSS)[material],
        torch.tensor(SURROUNDINGS)[material],
        torch.tensor(MIRROR)[material, None] * (ground * below[..., 2] * torch.tensor(LAMP_POWER)).sum(1, keepdim=True),
        torch.tensor(MIRROR)[material, None] * AMBIENT,
        albedo,
        torch.where(material[:, None] == metal, 0.25 + 0.75 * albedo, 1.0),  # colour of the gloss
        scenes.camera[solids.scene],
        (material[:, None] == metal).float(),
    ]
    t = torch.cat(table, dim=1).T.contiguous().index_select(1, hits.solid)
    toward, diffuse, gloss, surroundings = t[:9].view(3, 3, -1), t[9:12], t[12:15], t[15:18]
    near, far, albedo, sheen, camera, is_metal = t[18], t[19], t[20:23], t[23:26], t[26:29], t[29]

    normal, point = normals(hits, solids, BEVEL), points(hits, solids)
    view = point - camera
    view = view * _dot(view, view).rsqrt()
    mirrored = view - 2 * _dot(view, normal) * normal
    matte = surroundings[0] * normal[2].clamp(min=0) + surroundings[1] * (-normal[2]).clamp(min=0) + surroundings[2]
    shine = torch.zeros_like(matte)
    for lamp in range(3):
        matte += diffuse[lamp] * _dot(toward[lamp], normal).clamp(min=0)
        fourth = _dot(toward[lamp], mirrored).clamp(min=0) ** 4
        shine += gloss[lamp] * torch.where(is_metal > 0, fourth**16, fourth)
    # Downwards, the mirrored ground: bright below the object, fading with distance.
    away = point[2] / (-mirrored[2]).clamp(min=1e-3)
    matte += (0.5 - 4 * mirrored[2]).clamp(0, 1) * (far + near / (1 + (away / 4).square()))
    color = _srgb(albedo * matte + sheen * shine)
    return torch.cat([color, torch.ones_like(color[:1])]).T


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """Dot product of vectors whose coordinates are the first axis."""
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
