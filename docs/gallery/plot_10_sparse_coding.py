"""
Sparse coding of pictures by matching pursuit
=============================================

A patch of 8 × 8 pixels has 64 numbers. With a dictionary of 256 cosines, twice too many in each direction, a
handful of them says nearly the same. Orthogonal matching pursuit finds them greedily, for all patches of a picture
in one call.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch

from unknot.datamodules import ClevrScenes
from unknot.solvers import matching_pursuit

# %%
# A drawn scene, cut into 256 patches, each with its mean set aside.
image = ClevrScenes(image_size=128).draw(1, torch.Generator().manual_seed(4)).images[0].mean(0).numpy()
patches = image.reshape(16, 8, 16, 8).swapaxes(1, 2).reshape(256, 64)
means = patches.mean(1, keepdims=True)

# %%
# Cosines of 16 frequencies along each side: 256 atoms for 64 pixels.
places = np.arange(8) + 0.5
waves = np.cos(np.pi * np.outer(places, np.arange(16)) / 16)
dictionary = np.einsum("ia,jb->ijab", waves, waves).reshape(64, 256)
dictionary /= np.linalg.norm(dictionary, axis=0)

# %%
# ``[256, 64]`` signals and a dictionary ``[64, 256]``: one call solves the batch.
results = {
    count: matching_pursuit(patches - means, dictionary, variant="orthogonal", max_iterations=count, tol=0)
    for count in (1, 2, 4, 8)
}


def together(rows):
    """Patches back in their places."""
    return rows.reshape(16, 16, 8, 8).swapaxes(1, 2).reshape(128, 128)


figure, axes = plt.subplots(1, 5, figsize=(11, 2.7))
axes[0].imshow(image, cmap="gray", vmin=image.min(), vmax=image.max())
axes[0].set_title("64 numbers a patch")
for axis, (count, result) in zip(axes[1:], results.items()):
    drawn = together(result.x + means)
    decibel = -10 * np.log10(((drawn - image) ** 2).mean())
    axis.imshow(drawn, cmap="gray", vmin=image.min(), vmax=image.max())
    axis.set_title(f"{count} atom{'s' * (count > 1)}: {decibel:.1f} dB")
for axis in axes:
    axis.set(xticks=[], yticks=[])
figure.suptitle("A few cosines for each patch are enough for the picture (PSNR)")
plt.show()
