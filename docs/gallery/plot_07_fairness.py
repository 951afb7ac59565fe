"""
Is a representation fair?
=========================

A target is predicted from the codes; a *sensitive* factor should make no difference to the prediction. Targets and
sensitive factors are independent here, so whatever difference there is comes from the representation. Two bundled
models are compared.
"""

import matplotlib.pyplot as plt
import numpy as np

from unknot.datamodules import Coarse, DSprites
from unknot.hub import load
from unknot.metrics import evaluate

# %%
# Fewer values of each factor make the predictors quick to fit.
dataset = Coarse(DSprites(), {"scale": 3, "orientation": 4, "pos_x": 4, "pos_y": 4})
names = dataset.factor_space.names
models = ["unknot/adagvae-dsprites", "unknot/betavae-dsprites"]
scores = {
    name: evaluate(load(name).eval(), dataset, metrics=["unfairness", "mig"], num_train=1000, num_test=500)
    for name in models
}

# %%
# Rows are what is predicted, columns what should not matter: the distance, in total variation, between
# the predictions for one value of the sensitive factor and for all. White is fair.
figure, axes = plt.subplots(1, 2, figsize=(9.5, 4.2))
for axis, (name, found) in zip(axes, scores.items()):
    table = np.full((5, 5), np.nan)
    for i, target in enumerate(names):
        for j, sensitive in enumerate(names):
            if i != j:
                table[i, j] = found.details["unfairness"][f"{target}|{sensitive}"]
    image = axis.imshow(table, cmap="Oranges", vmin=0, vmax=0.1)
    for (i, j), value in np.ndenumerate(table):
        if i != j:
            axis.text(j, i, f"{value:.2f}", ha="center", va="center", fontsize=8)
    axis.set_xticks(range(5), names, rotation=30, ha="right")
    axis.set_yticks(range(5), names)
    axis.set(xlabel="sensitive", ylabel="predicted")
    axis.set_title(f"{name.partition('/')[2]}: mean {found['unfairness']:.3f}, MIG {found['mig']:.2f}")
figure.colorbar(image, ax=axes, label="unfairness", shrink=0.8)
better = min(scores, key=lambda name: scores[name]["unfairness"]).partition("/")[2]
figure.suptitle(f"{better} is the fairer of the two here; two models are no study")
plt.show()
