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
from unknot.studies.folders import read_plan

pd = pytest.importorskip("pandas")
pytestmark = pytest.mark.slow

KILLS = 20
STUDY = [sys.executable, "-c", "from unknot.cli import main; raise SystemExit(main())", "study"]
STEPS = int(os.environ.get("UNKNOT_TEST_STEPS", "150"))


def start(*words: str | Path, cwd: Path) -> subprocess.Popen[str]:
    command = [*STUDY, *map(str, words), "--checkpoint-every", "0.5", "--import", "toys"]
    environment = os.environ | {"RAY_worker_niceness": "0"}
    return subprocess.Popen(command, cwd=cwd, stderr=subprocess.PIPE, text=True, env=environment)


def end(runner: subprocess.Popen[str]) -> None:
    _, told = runner.communicate(timeout=1800)
    assert runner.returncode == 0, told


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
    assert (table.pop("core_seconds") > 0).all()
    pd.testing.assert_frame_equal(table, undisturbed.drop(columns="core_seconds"), check_exact=True)


def children(pid: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True).stdout
    return [int(child) for child in found.split()]


def pauses(seed: int) -> Iterator[float]:
    chance = random.Random(seed)
    for _ in range(KILLS):
        yield chance.uniform(0.5, 6.0)


def begun(folder: Path, runner: subprocess.Popen[str]) -> None:
    """Wait until jobs run: killing imports alone would be too easy."""
    deadline = time.monotonic() + 600
    while not list(folder.glob("jobs/*/*/progress.json")):
        if runner.poll() is not None:
            return
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_jobs(study: Path, toys: Path, undisturbed: Any) -> None:
    """A job that is killed is begun again, by the same runner, and resumes."""
    chance, kills = random.Random(1), 0
    while kills < KILLS:  # a run that ended is begun anew
        folder = toys / f"jobs-{kills}"
        runner = start("run", study, "--folder", folder, cwd=toys)
        for pause in pauses(kills):
            begun(folder, runner)
            time.sleep(pause)
            workers = children(runner.pid)
            if runner.poll() is not None or kills == KILLS:
                break
            if workers:
                os.kill(chance.choice(workers), signal.SIGKILL)
                kills += 1
        end(runner)
        check(folder, undisturbed)
    print(f"{kills} jobs killed")


def test_runners(study: Path, toys: Path, undisturbed: Any) -> None:
    folder, kills = toys / "runners", 0
    runner = start("run", study, "--folder", folder, cwd=toys)
    for pause in pauses(2):
        begun(folder, runner)
        time.sleep(pause)
        if runner.poll() is None:
            runner.kill()
            kills += 1
        runner.communicate()
        runner = start("run", folder, cwd=toys)
    end(runner)
    check(folder, undisturbed)
    print(f"{kills} runners killed")


def test_shards(study: Path, toys: Path, undisturbed: Any) -> None:
    """Two shards, as two tasks of a Slurm array; one that is killed is put into the queue again."""
    folder, chance, kills = toys / "shards", random.Random(3), 0
    first = start("run", study, "--folder", folder, "--shard", "1/2", "--jobs", "1", cwd=toys)
    second = start("run", study, "--folder", folder, "--shard", "2/2", "--jobs", "1", cwd=toys)
    shards = {"1/2": first, "2/2": second}
    for pause in pauses(3):
        name = chance.choice(list(shards))
        begun(folder, shards[name])
        time.sleep(pause)
        if shards[name].poll() is None:
            shards[name].kill()
            kills += 1
        shards[name].communicate()
        source = folder if (folder / "plan.json").exists() else study
        where = () if source == folder else ("--folder", folder)
        shards[name] = start("run", source, *where, "--shard", name, "--jobs", "1", cwd=toys)
    for runner in shards.values():
        end(runner)
    check(folder, undisturbed)
    print(f"{kills} shards killed")


def test_ray_nodes(study: Path, toys: Path, undisturbed: Any) -> None:
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    folder, kills = toys / "nodes", 0
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112  the name is Ray's
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        node = cluster.add_node(num_cpus=1)
        runner = start("run", study, "--folder", folder, "--ray", cluster.address, cwd=toys)
        for pause in pauses(4):
            begun(folder, runner)
            time.sleep(pause)
            if runner.poll() is not None:
                break
            cluster.remove_node(node, allow_graceful=False)
            kills += 1
            node = cluster.add_node(num_cpus=1)
        end(runner)
    finally:
        cluster.shutdown()
    check(folder, undisturbed)
    print(f"{kills} nodes killed")


def test_three_executors_give_one_table(study: Path, toys: Path, undisturbed: Any) -> None:
    pytest.importorskip("ray")
    end(start("run", study, "--folder", "by-shards", "--shard", "1/2", cwd=toys))
    end(start("run", study, "--folder", "by-shards", "--shard", "2/2", cwd=toys))
    end(start("run", study, "--folder", "by-ray", "--ray", cwd=toys))
    for folder in ("by-shards", "by-ray"):
        assert len(read_plan(toys / folder).jobs) == 24
        check(toys / folder, undisturbed)
