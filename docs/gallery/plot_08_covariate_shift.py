"""
When the test looks different: covariate shift
==============================================

A classifier of the shape is fitted on sprites that all stand in one column, and tested on sprites that stand
elsewhere. Nothing about the shape changed. Does the representation carry the classifier over?
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.ensemble import GradientBoostingClassifier

from unknot.datamodules import DSprites
from unknot.hub import load

dataset = DSprites()
generator = torch.Generator().manual_seed(0)
models = {name: load(f"unknot/{name}-dsprites").eval() for name in ("adagvae", "betatcvae", "betavae")}


def draw(n, column=None):
    """Images and factors, with the column fixed if one is given."""
    factors = dataset.factor_space.sample(n, generator)
    if column is not None:
        factors[:, 3] = column
    return dataset.observe(factors), factors


# %%
# Trained at column 8 of 32; tested column by column. Scale is the target.
images, factors = draw(800, column=8)
columns = range(0, 32, 4)
tests = {column: draw(300, column) for column in columns}
accuracy = {}
with torch.no_grad():
    for name, model in models.items():
        trees = GradientBoostingClassifier(n_estimators=30, random_state=0)
        trees.fit(model.represent(images), factors[:, 1])
        accuracy[name] = [trees.score(model.represent(x), y[:, 1]) for x, y in tests.values()]

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), width_ratios=[1, 1.6])
left.imshow(images[:16, 0].reshape(4, 4, 64, 64).swapaxes(1, 2).reshape(256, 256), cmap="gray")
left.set(title="what it is fitted on", xticks=[], yticks=[])
for (name, values), marker in zip(accuracy.items(), "os^"):
    right.plot(columns, values, marker=marker, label=f"{name}: {np.mean(values):.2f} on average")
right.axvline(8, color="#999999", ls="--", lw=1)
right.axhline(1 / 6, color="#999999", lw=1)
right.set(xlabel="column of the test images (dashed: of the training images)", ylabel="accuracy for scale", ylim=(0, 1))
right.set_title("fitted at one place, tested at others (grey line: chance)")
right.legend()
figure.suptitle("How far a predictor carries depends on whether position has codes of its own")
plt.show()
