"""Training runs from Python, the shell or a study.

from unknot.training import RunFolder, fit

from unknot.training import RunFolder, fit

run = fit("beta_vae_dsprites", overrides={"model.beta": 8, "trainer.max_steps": 10_000})
run = fit(run.path)                              # resumes it, wherever it was stopped
run.state(), run.scores(), run.model             # 'done', Scores(...), the folder of the saved model
"""

from typing import TYPE_CHECKING

from unknot.lazy import lazily

if TYPE_CHECKING:
    from unknot.training.fitting import fit
    from unknot.training.run_folder import RunFolder

__all__ = ["RunFolder", "fit"]

__getattr__ = lazily(__name__, {"RunFolder": "run_folder", "fit": "fitting"})
