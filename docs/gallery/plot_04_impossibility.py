"""
Why learning without supervision cannot work in general
=======================================================

For every pair of independent factors there is another pair, equally independent and with the same distribution, of
which each coordinate depends on both of the first. Pictures made from one are pictures made from the other, so no
number of them says which pair is true. This is the impossibility theorem of the thesis, and it can be drawn.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy import stats

from unknot.metrics.functional import mig
from unknot.studies.theory import Entangling

f = Entangling([stats.uniform(), stats.uniform()], alpha=0.15)
z = f.sample(20_000, seed=0)
w = f(z)
print(
    "undone by itself:",
    np.allclose(f(w), z),
    " density changes by at most",
    abs(1 - abs(np.linalg.det(f.jacobian(z)))).max(),
)

# %%
# Score both as representations, against each as the truth.
classes = [np.digitize(values, np.linspace(0, 1, 11)[1:-1]) for values in (z, w)]
scores = [[mig(codes, truth) for truth in classes] for codes in (z, w)]

# %%
figure, axes = plt.subplots(1, 3, figsize=(11, 4.2), width_ratios=[1, 1, 0.8])
shown = slice(4000)
for axis, points, name in zip(axes, (z, w), ("z", "f(z)")):
    axis.scatter(*points[shown].T, c=z[shown, 0], s=3, cmap="viridis")
    axis.set(title=f"{name}: uniform on the square", xlabel=f"{name}, first", ylabel=f"{name}, second", aspect="equal")
axes[2].imshow(scores, vmin=0, vmax=1, cmap="Blues")
for row in range(2):
    for column in range(2):
        value = scores[row][column]
        axes[2].text(column, row, f"{value:.2f}", ha="center", va="center", color="white" if value > 0.5 else "black")
axes[2].set(title="MIG", xlabel="believed to be true", ylabel="representation")
axes[2].set_xticks([0, 1], ["z", "f(z)"])
axes[2].set_yticks([0, 1], ["z", "f(z)"])
figure.suptitle(
    "Colour is the first coordinate of z: both fill the square alike, and each finds only itself disentangled"
)
plt.show()
