"""
What a pair of images gives away
================================

Two images of the same object a moment apart share most factors. Ada-GVAE does not know which: it compares the two
posteriors code by code, and takes as shared those below half-way between the smallest and the largest distance.
"""

import matplotlib.pyplot as plt
import torch

from unknot.datamodules import DSprites, PairDataModule
from unknot.zoo import AdaGVAE

dataset = DSprites()
model = AdaGVAE.from_pretrained("unknot/adagvae-dsprites").eval()
pairs = PairDataModule(dataset, k=1, batch_size=256, seed=0, with_factors=True)
first, second, _, before, after = next(iter(pairs.train_dataloader()))

# %%
# The distance of code i is KL(q(z_i|x₁) ‖ q(z_i|x₂)).
with torch.no_grad():
    p, q = model.encode(first), model.encode(second)
    ratio = (p.logvar - q.logvar).exp()
    distance = (ratio - 1 - ratio.log() + (p.mean - q.mean) ** 2 / q.logvar.exp()) / 2
threshold = (distance.amax(1) + distance.amin(1)) / 2

# %%
# One pair for each factor that may have changed.
changed = before != after
shown = [int((changed[:, factor] & (changed.sum(1) == 1)).nonzero()[0, 0]) for factor in range(5)]
figure, axes = plt.subplots(5, 3, figsize=(7.5, 7.5), width_ratios=[1, 1, 3])
for row, pair in zip(axes, shown):
    row[0].imshow(first[pair, 0], cmap="gray")
    row[1].imshow(second[pair, 0], cmap="gray")
    for axis in row[:2]:
        axis.set(xticks=[], yticks=[])
    row[0].set_ylabel(dataset.factor_space.names[int(changed[pair].nonzero()[0, 0])])
    above = distance[pair] >= threshold[pair]
    row[2].bar(range(10), distance[pair], color=["#e69f00" if each else "#999999" for each in above])
    row[2].axhline(threshold[pair], color="#000000", lw=1, ls="--")
    row[2].set(yticks=[], xticks=range(10))
axes[-1, 2].set_xlabel("code (orange: taken as changed; dashed: threshold)")
figure.suptitle("Which code moved between the two images; left, the factor that did")
plt.show()
