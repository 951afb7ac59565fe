"""Checkpoints: their files, names and locations. This package does not import torch.

from unknot.checkpoints.locate import resolve

from unknot.checkpoints.locate import resolve

source = resolve("unknot/adagvae-dsprites")     # bundled, in the cache, on a hub, or a folder
source.path("config.json")
"""
