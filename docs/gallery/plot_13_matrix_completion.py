"""
Fill in ratings that nobody gave
================================

People like films for a few reasons, so the table of ratings has low rank, and a fraction of it tells the rest. The
table is drawn here, so that the guesses can be compared with what people would have said.
"""

import matplotlib.pyplot as plt
import numpy as np

from unknot.solvers import MatrixCompletion

rng = np.random.default_rng(0)
taste, content = rng.normal(size=(200, 2)), rng.normal(size=(2, 150))
truth = np.clip(3 + 0.9 * taste @ content, 1, 5)
order = np.ix_(taste[:, 0].argsort(), content[0].argsort())
truth = truth[order]

# %%
# Of all ratings a quarter is known. A model that predicts nothing but the mean of a film is the thing to beat.
known = rng.random(truth.shape) < 0.25
pairs = np.argwhere(known)
noisy = np.clip(truth + 0.3 * rng.normal(size=truth.shape), 1, 5)
model = MatrixCompletion(random_state=0).fit(pairs, noisy[known])
everything = np.argwhere(np.ones(truth.shape))
guess = model.predict(everything).reshape(truth.shape)
films = np.array([noisy[known[:, film], film].mean() for film in range(truth.shape[1])])


def rmse(values):
    """On the ratings that were not known."""
    return np.sqrt(((values - truth)[~known] ** 2).mean())


# %%
figure, axes = plt.subplots(1, 4, figsize=(11, 3.8), width_ratios=[1, 1, 1, 0.05])
shown = [("what people think", truth), ("what they said", np.where(known, noisy, np.nan)), ("completed", guess)]
for axis, (title, table) in zip(axes, shown):
    image = axis.imshow(table, vmin=1, vmax=5, cmap="cividis", aspect="auto", interpolation="nearest")
    axis.set(title=title, xlabel="film", ylabel="person", xticks=[], yticks=[])
figure.colorbar(image, cax=axes[3], label="rating")
baseline = rmse(np.broadcast_to(films, truth.shape))
figure.suptitle(
    f"From {known.mean():.0%} of the ratings: error {rmse(guess):.2f}, against {baseline:.2f} for the mean of each film"
)
plt.show()
