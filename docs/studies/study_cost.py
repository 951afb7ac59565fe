"""Cost of a study besides its trainings: to expand it, to look at it, per job; and the gain of threads.

python docs/studies/study_cost.py paper             # expand, status and table of the 12,600 jobs of the thesis
python docs/studies/study_cost.py overhead 1000     # jobs of one step by executor: seconds for each
python docs/studies/study_cost.py overhead 200 ray  # by some of local, shard and ray
python docs/studies/study_cost.py threads           # two jobs of one thread against one job of two
python docs/studies/study_cost.py report            # time and memory of a report of 10,000 models
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

EXECUTORS = {"local": [], "shard": ["--shard", "1/1"], "ray": ["--ray"]}
DATASETS = ("dsprites", "color_dsprites", "noisy_dsprites", "scream_dsprites", "smallnorb", "cars3d", "shapes3d")
UNKNOT = [sys.executable, "-c", "from unknot.cli import main; raise SystemExit(main())"]


def paper() -> None:
    """Expand, status and table of the unsupervised study on its seven data sets, each in a process of its own."""
    with tempfile.TemporaryDirectory() as here:
        code = """
from unknot.studies import Study
from unknot.studies.jobs.runner import prepare
from pathlib import Path
import time
study = Study.from_file("unsupervised")
study.content["datasets"].remove("mpi3d_real")
start = time.process_time()
jobs = study.jobs()
print(f"expand {len(jobs):,} jobs: {time.process_time() - start:.1f} s")
prepare(study, Path("paper"))
"""
        _measured("expand and write the plan", [sys.executable, "-c", code], here)
        _fill(Path(here, "paper"))
        size = sum(file.stat().st_size for file in Path(here, "paper").rglob("*") if file.is_file())
        print(f"plan and scores: {size / 1e6:.0f} MB without models")
        _measured("status", [*UNKNOT, "study", "status", "paper"], here)
        _measured("table", [*UNKNOT, "study", "table", "paper"], here)


def _fill(folder: Path) -> None:
    """Leave what finished jobs leave, with models of a few bytes."""
    import torch
    from safetensors.torch import save_file

    from unknot.files import write_json
    from unknot.studies.plan import JobFolder, read_plan

    plan = read_plan(folder)
    names = [f"score_{number}" for number in range(40)]
    for place, job in enumerate(plan.jobs):
        run = JobFolder(folder, job.name)
        scores = {name: place / 12_600 + number for number, name in enumerate(names)}
        entries = [
            {"draws": p.draws, "metrics": list(p.metrics), "scores": scores | {"std": {}, "details": {"a": scores}}}
            for p in plan.protocols
        ]
        run.model.mkdir(parents=True)
        write_json(run.model / "config.json", {})
        save_file({"weight": torch.zeros(1)}, run.model / "model.safetensors")
        write_json(run.path / "scores.json", {"validation": {"val/loss": 0.0}, "entries": entries})


def _measured(what: str, command: list[str], cwd: str) -> None:
    """Run a command; print its processor time and its largest memory."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    shown = subprocess.run(
        [sys.executable, "-c", PEAK, json.dumps(command)], cwd=cwd, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{what}: {seconds:.1f} core-seconds, {int(shown[-1]) / 1024:.0f} MB; {'; '.join(shown[:-1])[:200]}")


PEAK = """
import json, resource, subprocess, sys
subprocess.run(json.loads(sys.argv[1]), check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def overhead(count: int, names: list[str]) -> None:
    """Jobs of one step: what each costs by executor, in wall time and in processor time of everything."""
    with tempfile.TemporaryDirectory() as here:
        study: dict[str, Any] = {
            "datasets": ["dsprites"],
            "image_size": 32,
            "seeds": count,
            "training": {"trainer.max_steps": 1, "data.batch_size": 1, "data.num_val_batches": 1},
            "sweeps": [{"config": "beta_vae_dsprites", "options": {"model.beta": [1]}}],
            "scores": [{"metrics": ["mig"], "num_train": 10, "num_test": 10}],
        }
        few_jobs = 4  # what is paid once for each worker is not counted
        for name in names or EXECUTORS:
            few, many = (_run_ones(here, f"{name}-{n}", EXECUTORS[name], n, study) for n in (few_jobs, count))
            wall, core = ((after - before) / (count - few_jobs) for before, after in zip(few, many, strict=True))
            print(f"{name}: {wall:.3f} s for each of {count} jobs, {core:.3f} core-seconds", flush=True)


def _run_ones(here: str, folder: str, options: list[str], count: int, study: dict[str, Any]) -> tuple[float, float]:
    Path(here, f"{count}.yaml").write_text(yaml.safe_dump(study | {"seeds": count}), encoding="utf-8")
    start, mark = time.perf_counter(), f"{here}/{folder}"
    command = [*UNKNOT, "study", "run", f"{count}.yaml", "--folder", folder, *options]
    environment = os.environ | {"RAY_worker_niceness": "0", "UNKNOT_BENCHMARK": mark}
    runner = subprocess.Popen(command, cwd=here, stderr=subprocess.DEVNULL, env=environment)
    seconds: dict[str, float] = {}
    while runner.poll() is None:
        seconds |= _processor_times(f"UNKNOT_BENCHMARK={mark}".encode())
        time.sleep(0.5)
    if runner.returncode:
        raise SystemExit(f"{' '.join(command)} failed")
    return time.perf_counter() - start, sum(seconds.values())


def _processor_times(mark: bytes) -> dict[str, float]:
    """Processor time of every process that was started with a mark in its environment: Ray's are nobody's children."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (process / "environ").read_bytes():
                fields = (process / "stat").read_text().rpartition(")")[2].split()
                found[process.name] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        except OSError:
            continue
    return found


def report() -> None:
    """Make a report of 10,000 synthetic models."""
    from unknot.studies.report import make_report
    from unknot.studies.synthetic import synthetic_results

    table = synthetic_results(DATASETS, seeds=17)
    start = time.process_time()
    made = make_report(table)
    analysed = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        size = made.write(folder).stat().st_size
    written = time.process_time()
    print(f"{len(table):,} models, {len(table.columns)} columns, {len(made.results)} analyses")
    seconds = f"analyses {analysed - start:.1f} s, figures and page {written - analysed:.1f} s of processor time"
    print(f"{seconds}; page {size / 1e6:.1f} MB")
    print(f"most memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB, torch included")


def threads(steps: int = 150, rounds: int = 3) -> None:
    """Steps a second of all jobs together, the two ways in turn."""
    code = f"""
import os, time, torch
from unknot.datamodules import DSprites, FactorDataModule, Resized
from unknot.zoo import BetaVAE
torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
data = iter(FactorDataModule(Resized(DSprites(), 32), seed=0).train_dataloader())
model = BetaVAE(image_shape=(1, 32, 32))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
def step():
    optimizer.zero_grad()
    model.losses(next(data))["loss"].backward()
    optimizer.step()
for _ in range(5): step()
print("ready", flush=True)
input()
start = time.perf_counter()
for _ in range({steps}): step()
print({steps} / (time.perf_counter() - start))
"""
    ways = {"two jobs of one thread": (2, 1), "one job of two threads": (1, 2), "the same, spinning": (1, 2)}
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, (jobs, each) in ways.items():
            policy = "ACTIVE" if "spinning" in name else "PASSIVE"
            environment = os.environ | {"OMP_NUM_THREADS": str(each), "OMP_WAIT_POLICY": policy}
            processes = [
                subprocess.Popen(
                    [sys.executable, "-c", code],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    env=environment,
                )
                for _ in range(jobs)
            ]
            for process in processes:
                assert process.stdout is not None
                process.stdout.readline()
            for process in processes:
                assert process.stdin is not None
                process.stdin.write("\n")
                process.stdin.flush()
            rates[name].append(sum(float(process.communicate()[0]) for process in processes))
    for name, values in rates.items():
        shown = ", ".join(f"{rate:.1f}" for rate in values)
        print(f"{name}: {sorted(values)[len(values) // 2]:.1f} steps/s ({shown})")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["overhead", count, *names] if set(names) <= set(EXECUTORS):
            overhead(int(count), names)
        case ["threads"]:
            threads()
        case ["report"]:
            report()
        case ["paper"] | []:
            paper()
        case _:
            raise SystemExit(__doc__)
