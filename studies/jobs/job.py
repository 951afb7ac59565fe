"""Job of a study: train, save, score. It runs in its own process and communicates by files."""

import gc
from collections.abc import Iterable
from functools import partial

import torch

from unknot.studies.jobs.scoring import add_scores
from unknot.studies.jobs.worker import Settings
from unknot.studies.plan import JobFolder
from unknot.studies.protocols import Protocol
from unknot.studies.study import Job
from unknot.training.fitting import fit_job
from unknot.training.stopping import Stop


def perform(
    run: JobFolder,
    job: Job,
    study: str,
    protocols: Iterable[Protocol],
    accelerator: str,
    settings: Settings,
    imported: Iterable[str],
    stop: Stop,
) -> None:
    """Train and score the missing parts of a job.

    Args:
        run: folder of the job.
        job: the job.
        study: name of the study.
        protocols: scores to compute.
        accelerator: ``"cpu"`` or ``"gpu"``; one device.
        settings: options that do not affect results.
        imported: modules whose classes its settings may name, in addition to unknot's.
        stop: request to stop, checked after every step.
    """
    imported, protocols = tuple(imported), list(protocols)
    if not run.is_trained() or not run.validation():
        where = {"name": study, "job": job.name, "settings": job.settings}
        fit_job(
            run, job.config, where, accelerator, settings.checkpoint_every, settings.keep_checkpoints, imported, stop
        )
    stop.allow()
    if not settings.keep_checkpoints:
        run.forget_states()
    with run.heartbeat():
        add_scores(run, job.config, protocols, imported, partial(run.report, "scoring"))
    run.succeed()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    gc.collect()
