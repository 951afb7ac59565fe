"""Background evaluations of checkpoints for the page, one at a time."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from unknot.checkpoints.card import plain
from unknot.metrics.registry import about, default_scores
from unknot.metrics.scores import Scores

MAX_WAITING = 50
EVALUATION = 1800.0
"""Maximum seconds of one score, so that the queue does not block."""


@dataclass(frozen=True)
class Job:
    """Progress of an evaluation: ``done`` of ``total`` metrics, and the current one."""

    state: str
    done: int = 0
    total: int = 0
    now: str = ""
    error: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)


class Jobs:
    """Evaluations by the id of their checkpoint."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._lock, self._turn = threading.Lock(), threading.Lock()

    def get(self, key: str) -> Job | None:
        """Return the last job of a checkpoint."""
        return self._jobs.get(key)

    def start(
        self,
        key: str,
        load: Callable[[], Any],
        keep: Callable[[Scores], None],
        metrics: Sequence[str] | None = None,
    ) -> Job:
        """Start an evaluation, unless one is running; each score is stored as soon as it is known.

        Args:
            key: id of the checkpoint.
            load: function that loads the model.
            keep: function that stores the scores.
            metrics: metrics to compute; by default the default ones for this model.
        """
        with self._lock:
            known = self._jobs.get(key)
            if known and known.state in ("waiting", "running"):
                return known
            if sum(job.state == "waiting" for job in self._jobs.values()) >= MAX_WAITING:
                raise ValueError("The evaluation queue is full; try again later.")
            self._jobs[key] = job = Job("waiting", total=len(metrics or default_scores()))
        threading.Thread(target=self._run, args=(key, job, load, keep, metrics)).start()
        return job

    def _run(
        self,
        key: str,
        job: Job,
        load: Callable[[], Any],
        keep: Callable[[Scores], None],
        metrics: Sequence[str] | None,
    ) -> None:
        from unknot.datamodules import available_dataset
        from unknot.hub.browser.players import Deadline
        from unknot.metrics import evaluate

        try:
            with self._turn:
                model = load()
                dataset = available_dataset(model.trained_on, model.image_shape)
                if dataset is None:
                    raise ValueError(
                        f"The data set of this model ({model.trained_on or 'unknown'}) is not available locally."
                    )
                metrics = default_scores(model) if metrics is None else metrics
                job = replace(job, total=len(metrics))
                for place, metric in enumerate(metrics):
                    if not threading.main_thread().is_alive():  # stopping the page waits for at most one score
                        return
                    self._jobs[key] = replace(job, state="running", done=place, now=about(metric).title)
                    with Deadline(EVALUATION):
                        scores = evaluate(model, dataset, [metric])
                    keep(scores)
                self._jobs[key] = replace(job, state="done", done=len(metrics))
        except Exception as error:  # shown on the page
            self._jobs[key] = replace(self._jobs[key], state="failed", error=plain(error, 500) or type(error).__name__)
