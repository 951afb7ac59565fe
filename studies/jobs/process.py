"""Worker process of jobs: it imports once and runs one job after another.

``python -m unknot.studies.jobs.process`` reads jobs from its standard input, one JSON line each, and answers with one
JSON line each. The output of jobs goes to their own log. When its input ends, because the runner is gone, the process
ends at once: the next one repeats what was not saved.
"""

import errno
import gc
import json
import os
import queue
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from unknot.machine import avoid_broken_amx, keep_freed_memory
from unknot.studies.jobs.worker import Outcome, Settings
from unknot.studies.plan import JobFolder
from unknot.studies.protocols import Protocol
from unknot.studies.study import Job
from unknot.training.settings import import_modules
from unknot.training.stopping import Stop, Stopped


def main() -> None:
    """Run jobs until the input ends."""
    keep_freed_memory()
    avoid_broken_amx()
    stop = Stop(held=True, quiet=True)
    answers = os.fdopen(os.dup(1), "w")
    orders = _orders()
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    with stop.listening(signal.SIGTERM):
        while True:
            order = json.loads(orders.get())
            outcome = _perform(Path(order["study"]), Job(**order["job"]), order, stop)
            answers.write(json.dumps(asdict(outcome)) + "\n")
            answers.flush()
            if outcome.what == "stopped":
                return


def _orders() -> "queue.SimpleQueue[str]":
    """Return a queue of incoming lines; the process exits when the input ends."""
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    source = os.fdopen(os.dup(0))

    def read() -> None:
        for line in source:
            lines.put(line)
        os._exit(1)

    threading.Thread(target=read, daemon=True).start()
    return lines


def _perform(study: Path, job: Job, order: dict[str, Any], stop: Stop) -> Outcome:
    run = JobFolder(study, job.name)
    try:
        with run.lock():
            try:
                return _with_lock(run, job, order, stop)
            except Stopped:
                return Outcome(job.name, "stopped", "its process was asked to end")
            finally:
                stop.hold()
    except BlockingIOError:
        return Outcome(job.name, "busy", "another process has it")
    except OSError as error:
        return Outcome(job.name, "full" if _is_full(error, study) else "failed", " ".join(str(error).split()))


def _with_lock(run: JobFolder, job: Job, order: dict[str, Any], stop: Stop) -> Outcome:
    if failed := run.problem():  # meanwhile under another runner; `unknot study retry` retries it
        return Outcome(job.name, "failed", failed)
    run.clean()
    with _printing_to(run.log):
        stop.allow()
        from unknot.studies.jobs.job import perform

        if not gc.get_freeze_count():  # collect the garbage of jobs without scanning all imported modules
            gc.freeze()
        protocols = [_protocol(protocol) for protocol in order["protocols"]]
        resumed, start = run.has_state(), time.monotonic()
        try:
            if order["imported"]:
                sys.path += [place for place in order["places"] if place not in sys.path]
            import_modules(order["imported"])
            accelerator, imported = order["accelerator"], order["imported"]
            perform(run, job, order["name"], protocols, accelerator, Settings(**order["settings"]), imported, stop)
        except Exception as error:
            if _is_full(error, run.path):
                return Outcome(job.name, "full", " ".join(str(error).split()))
            return Outcome(job.name, "failed", run.fail(error)["error"])
        return Outcome(job.name, "done", seconds=None if resumed else time.monotonic() - start)


def _protocol(document: dict[str, Any]) -> Protocol:
    labels = tuple((name, value) for name, value in document["labels"])
    return Protocol(**document | {"metrics": tuple(document["metrics"]), "labels": labels})


def _is_full(error: Exception, folder: Path) -> bool:
    """Return whether an error means a full disk; torch and safetensors raise their own errors."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    says_so = any(words in str(error) for words in ("No space left", "quota exceeded"))
    return says_so or shutil.disk_usage(folder).free < 1 << 20


@contextmanager
def _printing_to(log: Path) -> Iterator[None]:
    """Redirect the output of the process to a file."""
    kept = os.dup(1), os.dup(2)
    with log.open("a") as file:
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os.dup2(kept[0], 1)
            os.dup2(kept[1], 2)
            for descriptor in kept:
                os.close(descriptor)


if __name__ == "__main__":
    main()
