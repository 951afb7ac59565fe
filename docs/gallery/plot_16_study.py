"""
A study of eight models
=======================

Two methods, two strengths, two seeds: a study is one description, and its result is one table. This one is small
enough to run while you read it; the studies of the thesis differ in size alone.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import yaml

from unknot.studies import Local, Study, results, run

# %%
# What ``unknot study run mine.yaml`` would read.
folder = Path(tempfile.mkdtemp())
(folder / "mine.yaml").write_text(
    yaml.safe_dump(
        {
            "description": "does the strength matter, or the seed?",
            "datasets": ["dsprites_32"],
            "seeds": 2,
            "training": {"trainer.max_steps": 60, "data.batch_size": 16, "data.num_val_batches": 1, "model.lr": 1e-3},
            "sweeps": [
                {"config": "beta_vae_dsprites", "options": {"model.beta": [1, 8]}},
                {"config": "beta_tcvae_dsprites", "options": {"model.beta": [1, 8]}},
            ],
            "scores": [{"metrics": ["mig", "elbo"], "num_train": 500, "num_test": 200}],
        }
    )
)
study = Study.from_file(folder / "mine.yaml")
run(study, folder / "results", Local(jobs=2, threads=1))
table = results(folder / "results")
print(table[["method", "strength", "seed", "mig", "elbo"]].round(3))

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6))
for marker, (method, rows) in zip("os", table.groupby("method")):
    left.plot(rows["strength"].astype(float), rows["elbo"], marker, ms=8, alpha=0.8, label=method)
    right.plot(rows["elbo"], rows["mig"], marker, ms=8, alpha=0.8, label=method)
left.set(xlabel="β", ylabel="ELBO (nats)", title="two seeds of every setting", xlim=(0, 9), xticks=[1, 8])
right.set(xlabel="ELBO (nats)", ylabel="MIG", title="after 60 steps nothing is disentangled yet", ylim=(0, None))
left.legend()
seeds = table.groupby(["method", "strength"])["elbo"].agg(lambda values: values.max() - values.min()).mean()
figure.suptitle(f"Eight models, one table: two seeds of a setting differ by {seeds:.1f} nats on average")
plt.show()
