"""
Boosting variational inference: one component after another
===========================================================

A single Gaussian cannot follow a density with several modes. Frank-Wolfe over mixtures adds components one by one,
each where the mixture so far has too little.
"""

import matplotlib.pyplot as plt
import torch
from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal

from unknot.solvers import boost_variational_inference

# %%
# Three modes in the plane; only their log density is used.
means = torch.tensor([[-2.0, 0.0], [1.5, 1.5], [1.5, -1.8]], dtype=torch.float64)
spreads = torch.tensor([[0.5, 0.9], [0.6, 0.5], [0.8, 0.4]], dtype=torch.float64)
weights = torch.full((3,), 1 / 3, dtype=torch.float64)
target = MixtureSameFamily(Categorical(weights), Independent(Normal(means, spreads), 1))

mixtures = []
result = boost_variational_inference(
    target, max_iterations=5, tol=0, oracle_steps=150, samples=1000, callback=lambda state: mixtures.append(state.x)
)

# %%
axis = torch.linspace(-4, 4, 80, dtype=torch.float64)
grid = torch.cartesian_prod(axis, axis)
shown = [0, 1, 2, len(mixtures) - 1]
figure, axes = plt.subplots(1, 5, figsize=(12, 3.3))
for number, drawn in enumerate([target, *(mixtures[k] for k in shown)]):
    density = drawn.log_prob(grid).exp().reshape(80, 80).T.detach()
    axes[number].contourf(axis, axis, density, levels=12, cmap="viridis")
    axes[number].set(xticks=[], yticks=[], aspect="equal")
axes[0].set_title("target")
for place, k in enumerate(shown, start=1):
    axes[place].set_title(f"{k + 1} component{'s' * (k > 0)}\nKL {result.trace.value[k]:.2f}")
figure.suptitle("Each new component goes where the mixture misses the target")
plt.show()
