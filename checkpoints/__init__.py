"""Checkpoints: what is in them, how they are named, and where they are found. Nothing here imports torch.

from unknot.checkpoints.locate import resolve

source = resolve("unknot/adagvae-dsprites")     # bundled, in the cache, on a hub, or a folder
source.path("config.json")
"""
