"""Twenty random SIGKILLs each: of jobs, of the runner, of shards and of Ray nodes. The table must not tell."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from unknot.studies import results
from unknot.studies.plan import read_plan
from unknot.studies.table import TOOK

pd = pytest.importorskip("pandas")
pytestmark = pytest.mark.slow

KILLS = 20
STUDY = [sys.executable, "-c", "from unknot.cli import main; raise SystemExit(main())", "study"]
STEPS = int(os.environ.get("UNKNOT_TEST_STEPS", "150"))
Runner = subprocess.Popen[str]


def start(*words: str | Path, cwd: Path) -> Runner:
    command = [*STUDY, *map(str, words), "--checkpoint-every", "0.5", "--import", "toys"]
    environment = os.environ | {"RAY_worker_niceness": "0"}
    return subprocess.Popen(command, cwd=cwd, stderr=subprocess.PIPE, text=True, env=environment)


def end(runner: Runner) -> None:
    _, output = runner.communicate(timeout=1800)
    assert runner.returncode == 0, output


@pytest.fixture(scope="module")
def study(toys: Path, tiny: Callable[..., dict[str, Any]], write: Callable[..., Path]) -> Path:
    """Twenty-four short jobs."""
    sweeps = [
        {"config": "beta_vae_dsprites", "options": {"model.beta": [1, 2, 4, 6]}},
        {"config": "factor_vae_dsprites", "options": {"model.gamma": [10, 20]}},
        {"config": "annealed_vae_dsprites", "options": {"model.c_max": [5, 25]}},
    ]
    return write(toys / "kills.yaml", tiny(steps=STEPS, seeds=3, sweeps=sweeps))


@pytest.fixture(scope="module")
def undisturbed(study: Path, toys: Path) -> Any:
    runner = start("run", study, "--folder", "undisturbed", cwd=toys)
    end(runner)
    table = results(toys / "undisturbed")
    assert len(table) == 24
    assert (table["status"] == "done").all()
    return table


def check(folder: Path, undisturbed: Any) -> None:
    table = results(folder)
    assert table["job"].is_unique
    assert (table["core_seconds"] > 0).all()
    outcome = [name for name in undisturbed if name not in TOOK]  # no two runs share their time, or perhaps the commit
    pd.testing.assert_frame_equal(table[outcome], undisturbed[outcome], check_exact=True)
    assert list(table) == list(undisturbed)


def descendants(pid: int) -> dict[int, float]:
    """All processes below one, with the time at which each was started (to a second, not earlier than it was)."""
    listed = subprocess.run(["ps", "-e", "-o", "pid=,ppid=,etimes="], capture_output=True, text=True).stdout
    processes = [tuple(map(int, line.split())) for line in listed.splitlines()]
    found, fresh = dict[int, float](), {pid}
    while fresh:
        below = {child: time.time() - age for child, parent, age in processes if parent in fresh}
        found |= below
        fresh = set(below)
    return found


def at_work(folder: Path, below: int) -> list[int]:
    """Processes below one that have a job in hand, under way since they took it: not those that still import."""
    found = []
    for pid, started in descendants(below).items():
        try:
            held = [Path(os.readlink(link)) for link in Path(f"/proc/{pid}/fd").iterdir()]
            jobs = [path.parent for path in held if path.name == ".lock" and path.is_relative_to(folder / "jobs")]
            # What one that was killed left behind is older.
            if any((job / "progress.json").stat().st_mtime > started for job in jobs):
                found.append(pid)
        except FileNotFoundError:  # it ended, or its job did
            continue
    return found


def wait_for_work(folder: Path, below: int, runner: Runner) -> bool:
    """Wait until jobs run below a process; whether they do before the runner ends."""
    deadline = time.monotonic() + 600
    while not at_work(folder, below):
        if runner.poll() is not None:
            return False
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return True


class Killer:
    """Counts kills of processes that are at work, at moments drawn at random."""

    def __init__(self, seed: int) -> None:
        self.chance, self.kills, self.found = random.Random(seed), 0, list[int]()

    def folders(self, toys: Path, name: str, undisturbed: Any) -> Iterator[Path]:
        """Folders to run the study in, one after another until there were enough kills; each is checked."""
        while self.kills < KILLS:
            folder = toys / f"{name}-{self.kills}"
            yield folder
            check(folder, undisturbed)
        print(f"{name}: {self.kills} killed")

    def ready(self, folder: Path, below: int, runner: Runner) -> bool:
        """Wait for work and then for the moment: whether to kill now."""
        while self.kills < KILLS and wait_for_work(folder, below, runner):
            time.sleep(self.chance.uniform(0.1, 4.0))
            self.found = at_work(folder, below)
            if self.found:
                self.kills += 1
                return True
        return False


def test_jobs(study: Path, toys: Path, undisturbed: Any) -> None:
    """A job that is killed is begun again, by the same runner, and resumes."""
    killer = Killer(1)
    for folder in killer.folders(toys, "jobs", undisturbed):
        runner = start("run", study, "--folder", folder, cwd=toys)
        while killer.ready(folder, runner.pid, runner):
            os.kill(killer.chance.choice(killer.found), signal.SIGKILL)
        end(runner)


def test_runners(study: Path, toys: Path, undisturbed: Any) -> None:
    killer = Killer(2)
    for folder in killer.folders(toys, "runners", undisturbed):
        runner = start("run", study, "--folder", folder, cwd=toys)
        while killer.ready(folder, runner.pid, runner):
            runner.kill()
            runner.communicate()
            runner = start("run", folder, cwd=toys)
        end(runner)


def test_shards(study: Path, toys: Path, undisturbed: Any) -> None:
    """Two shards, as two tasks of a Slurm array; one that is killed is put into the queue again."""
    killer = Killer(3)
    for folder in killer.folders(toys, "shards", undisturbed):
        task = ("--jobs", "1", "--shard")
        shards = {name: start("run", study, "--folder", folder, *task, name, cwd=toys) for name in ("1/2", "2/2")}
        while running := [name for name in shards if shards[name].poll() is None]:
            name = killer.chance.choice(running)
            if killer.kills == KILLS:
                break
            if killer.ready(folder, shards[name].pid, shards[name]):
                shards[name].kill()
                shards[name].communicate()
                shards[name] = start("run", folder, *task, name, cwd=toys)
        for runner in shards.values():
            end(runner)


def test_ray_nodes(study: Path, toys: Path, undisturbed: Any) -> None:
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    killer = Killer(4)
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112  the name is Ray's
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        node = cluster.add_node(num_cpus=1)
        for folder in killer.folders(toys, "nodes", undisturbed):
            runner = start("run", study, "--folder", folder, "--ray", cluster.address, cwd=toys)
            while killer.ready(folder, node.all_processes["raylet"][0].process.pid, runner):
                cluster.remove_node(node, allow_graceful=False)
                node = cluster.add_node(num_cpus=1)
            end(runner)
    finally:
        cluster.shutdown()


def test_three_executors_give_one_table(study: Path, toys: Path, undisturbed: Any) -> None:
    pytest.importorskip("ray")
    end(start("run", study, "--folder", "by-shards", "--shard", "1/2", cwd=toys))
    end(start("run", study, "--folder", "by-shards", "--shard", "2/2", cwd=toys))
    for _ in range(2):  # the second time on a new cluster, which has nothing to do
        end(start("run", study, "--folder", "by-ray", "--ray", cwd=toys))
    for folder in ("by-shards", "by-ray"):
        assert len(read_plan(toys / folder).jobs) == 24
        check(toys / folder, undisturbed)
