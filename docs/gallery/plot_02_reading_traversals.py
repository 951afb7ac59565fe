"""
How to read traversals
======================

A traversal moves one code and decodes. It shows what a code *does*; it does not show what else does the same.
Beside each row stands how much the code knows about each true factor, measured on images: the two must be read
together.
"""

import matplotlib.pyplot as plt
import torch

from unknot.datamodules import DSprites
from unknot.metrics.functional import information_matrix
from unknot.zoo import AdaGVAE

dataset = DSprites()
model = AdaGVAE.from_pretrained("unknot/adagvae-dsprites").eval()
factors = dataset.factor_space.sample(5000, torch.Generator().manual_seed(0))
images = dataset.observe(factors)
with torch.no_grad():
    posterior = model.encode(images)

# %%
# Mutual information of codes and factors, ``[10, 5]``, in nats, as the mutual information gap uses it.
information = information_matrix(posterior.mean, factors).values
used = posterior.kl().mean(0).argsort(descending=True)[:6]

# %%
# Rows are sorted by how much the encoder puts into a code.
strips = model.traverse(images[7:8], torch.linspace(-2, 2, 9))[0, used]
figure, axes = plt.subplots(len(used), 2, figsize=(9, 6), width_ratios=[5, 2], sharex="col")
for (left, right), strip, code in zip(axes, strips, used.tolist()):
    left.imshow(strip[:, 0].permute(1, 0, 2).flatten(1), cmap="gray")
    left.set_ylabel(f"code {code}", rotation=0, ha="right", va="center")
    left.set(xticks=[], yticks=[])
    right.barh(range(5), information[code], color="#0072b2")
    right.set_yticks(range(5), dataset.factor_space.names, fontsize=7)
    right.invert_yaxis()
axes[-1, 1].set_xlabel("mutual information (nats)")
figure.suptitle("The first two codes are positions. Orientation takes two, and shape has none of its own")
plt.show()
