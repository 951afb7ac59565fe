"""
k-means without a start: its semidefinite relaxation
====================================================

k-means finds a partition and cannot say how good it is. Its relaxation to a semidefinite programme depends on no
start, and its optimum bounds the cost of every partition from below.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.cluster import KMeans

from unknot.solvers import SDPKMeans

rng = np.random.default_rng(0)
centres = np.array([[0.0, 0.0], [3.0, 0.4], [1.2, 2.6], [4.2, 2.9]])
points = np.concatenate([centre + 0.42 * rng.standard_normal((25, 2)) for centre in centres])

# %%
# The matrix X of the relaxation says which points belong together; rounding it gives the clusters. Until the solver has
# converged and is feasible, half its objective is an estimate of the bound and not yet one.
model = SDPKMeans(4, max_iter=800, random_state=0).fit(points)
single = [KMeans(4, n_init=1, init="random", random_state=seed).fit(points).inertia_ for seed in range(20)]
print(f"cost {model.inertia_:.2f}, relaxed {model.objective_ / 2:.2f}, {model.feasibility_:.3f} from feasible")

# %%
figure, axes = plt.subplots(1, 3, figsize=(11, 3.6))
axes[0].scatter(*points.T, c=model.labels_, cmap="cividis", s=18)
axes[0].scatter(*model.cluster_centers_.T, marker="x", color="#d55e00", s=80)
axes[0].set(title="clusters", xticks=[], yticks=[])
axes[1].imshow(model.relaxation_, cmap="viridis")
axes[1].set(title="X of the relaxation", xlabel="point", ylabel="point")
axes[2].hist(single, bins=20, color="#999999", label="k-means, 20 random starts")
axes[2].axvline(model.inertia_, color="#0072b2", label="rounded relaxation")
axes[2].set(title="cost", xlabel="sum of squared distances", ylabel="starts")
axes[2].legend(fontsize=8)
missed = sum(cost > 1.01 * model.inertia_ for cost in single)
figure.suptitle(f"The blocks of the relaxation are the clusters; {missed} of 20 random starts of k-means end elsewhere")
plt.show()
