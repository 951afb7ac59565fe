"""``unknot study list | show | run | status | table | retry | report``."""

import argparse
import shlex
import signal
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unknot.cli import imports
from unknot.cli.parsing import Commands, command

if TYPE_CHECKING:
    from unknot.studies import Executor, Summary
    from unknot.studies.plan import Plan

WIDTH = 100


def add_to(commands: Commands) -> None:
    """Add the options of ``unknot study``."""
    parser = command(
        commands,
        "study",
        "train and score all models of a study",
        "unknot study list",
        "unknot study run dsprites32",
        "unknot study status runs/dsprites32",
        "unknot study table runs/dsprites32",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="action")
    command(actions, "list", "the bundled studies", "unknot study list")
    show = command(actions, "show", "what a study trains, and what it takes", "unknot study show dsprites32")
    show.add_argument("study", help="a bundled study, or a YAML file")
    run = command(
        actions,
        "run",
        "do what is not done yet",
        "unknot study run dsprites32",
        "unknot study run my_study.yaml --folder /scratch/my_study --jobs 8",
        "unknot study run unsupervised --gpus 4 --gpus-per-job 0.25",
        "unknot study run unsupervised --shard $SLURM_ARRAY_TASK_ID/64      # in a Slurm array 1-64",
        "unknot study run unsupervised --ray auto                           # on a running Ray cluster",
    )
    run.add_argument("study", help="a bundled study, a YAML file, or the folder of a study to resume")
    run.add_argument("--folder", metavar="DIR", help="folder for its files (default: runs/NAME)")
    run.add_argument("--plan", action="store_true", help="only write the folder and its plan, for shards")
    retry = command(
        actions, "retry", "run failed jobs again, then the rest", "unknot study retry runs/dsprites32 --jobs 1"
    )
    retry.add_argument("folder", help="folder of a study")
    for action in (run, retry):
        _where(action)
    for action in (show, run, retry):
        action.add_argument(imports.FLAG, metavar="MODULE", help=imports.HELP)
    status = command(actions, "status", "how far a study is, and what failed", "unknot study status runs/dsprites32")
    status.add_argument("folder", help="folder of a study")
    status.add_argument("--failed", action="store_true", help="show all failed jobs with their tracebacks")
    table = command(
        actions,
        "table",
        "write the results as CSV and Parquet",
        "unknot study table runs/dsprites32",
        "unknot study table runs/dsprites32 --out results.csv",
        "unknot study table here/dsprites32 there/dsprites32 table.csv --out all.csv",
    )
    table.add_argument(
        "sources", nargs="+", metavar="DIR", help="folder of a study, or several folders and (bundled) tables to merge"
    )
    table.add_argument("--out", metavar="FILE", help="*.csv or *.parquet (default: both, in the folder)")
    table.add_argument("--ship", action="store_true", help="write the finished jobs as a table of the package itself")
    report = command(
        actions,
        "report",
        "every analysis of the thesis that the results allow, as one page",
        "unknot study report runs/dsprites32",
        "unknot study report results.csv --out report",
        "unknot study report dsprites32 rooms32 --out both        # of one table, as if it were one study",
    )
    report.add_argument(
        "results",
        nargs="+",
        metavar="RESULTS",
        help="the folder of a study, a table (.csv, .parquet, .json), or a bundled table; several are merged",
    )
    report.add_argument("--out", metavar="FOLDER", help="folder for page, figures and tables (default: RESULTS/report)")
    report.add_argument("--only", nargs="+", metavar="NAME", help="only these analyses")
    report.add_argument(
        "--resamples", type=int, default=500, metavar="N", help="number of bootstraps and permutations (default: 500)"
    )
    report.add_argument("--seed", type=int, default=0, help="seed of bootstraps and permutations (default: 0)")
    parser.set_defaults(run=study_command)


def _where(action: argparse.ArgumentParser) -> None:
    add = action.add_argument
    either = action.add_mutually_exclusive_group()
    options = [
        add("--jobs", type=int, metavar="N", help="how many at a time (default: one per core, or GPU share)"),
        add("--threads", type=int, default=1, metavar="N", help="threads of each job (default: 1)"),
        add("--gpus", type=int, default=0, metavar="N", help="GPUs to use (default: 0, the CPU)"),
        add("--gpus-per-job", type=float, default=1.0, metavar="X", help="part of a GPU for each job (default: 1)"),
        either.add_argument("--shard", metavar="I/N", help="only the I-th of N equal parts, from 1"),
        either.add_argument(
            "--ray",
            nargs="?",
            const="local",
            metavar="ADDRESS",
            help="on a Ray cluster: its address, or auto; without one, Ray is started on this machine",
        ),
        add("--checkpoint-every", type=float, default=60.0, metavar="S", help="seconds between saves (default: 60)"),
        add("--keep-checkpoints", action="store_true", help="keep the last state of finished jobs"),
    ]
    action.set_defaults(where=options)


def study_command(arguments: argparse.Namespace) -> int:
    """Run one of the actions."""
    actions = {"list": _list, "show": _show, "run": _run, "retry": _run, "status": _status, "table": _table}
    return (actions | {"report": _report})[arguments.action](arguments)


def _list(arguments: argparse.Namespace) -> int:
    from unknot.studies import bundled_tables
    from unknot.studies.study import Study
    from unknot.training import configs

    names = configs.sweep_names()
    column = max(map(len, names)) + 2
    for name in names:
        words = Study.from_file(name).description
        if name in bundled_tables.names():
            table = bundled_tables.about(name)
            words += f". Results of {table['models']} of {table['planned']} models: load_results({name!r})"
        print(textwrap.fill(words, WIDTH, initial_indent=name.ljust(column), subsequent_indent=" " * column))
    return 0


def _show(arguments: argparse.Namespace) -> int:
    from unknot.studies.jobs.runner import disk_use, show_bytes
    from unknot.studies.study import Study

    study = Study.from_file(arguments.study, arguments.imported)
    jobs = study.check()
    print(f"{study.name}: {study.description}")
    print(f"jobs      {len(jobs):,} of {sum(job.steps for job in jobs):,} steps in all")
    for key in ("dataset", "method", "seed"):
        counts: dict[Any, int] = {}
        for job in jobs:
            counts[job.settings[key]] = counts.get(job.settings[key], 0) + 1
        shown = [f"{value} {count:,}" for value, count in counts.items()]
        print(f"{key:<9} {', '.join(shown[:12])}{f' and {len(shown) - 12} more' if len(shown) > 12 else ''}")
    for protocol in study.protocols:
        if not protocol.labels:
            columns = ", ".join(protocol.column(metric) for metric in protocol.metrics)
            samples = f"{protocol.num_train:,} + {protocol.num_test:,} samples, seed {protocol.seed}"
            print(f"scores    {columns} ({samples})")
    if on_labels := [protocol for protocol in study.protocols if protocol.labels]:
        columns = ", ".join(on_labels[0].column(metric) for metric in on_labels[0].metrics)
        print(f"scores    {columns} and so on, on {len(on_labels)} small sets of labels")
    print(f"disk      about {show_bytes(disk_use(jobs, study.imported))} when all are done")
    print(f"run it    unknot study run {arguments.study}")
    return 0


def _run(arguments: argparse.Namespace) -> int:
    from unknot.studies.jobs.runner import INTERRUPTED, clear_errors, prepare, run
    from unknot.studies.plan import read_plan
    from unknot.studies.study import Study

    executor = _executor(arguments)
    plan: Plan
    if arguments.action == "retry":
        folder = Path(arguments.folder)
        plan = read_plan(folder, arguments.imported)
        print(f"{clear_errors(folder, plan)} failed jobs are retried.", file=sys.stderr)
    elif Path(arguments.study, "plan.json").is_file():
        if arguments.folder:
            raise ValueError(f"{arguments.study} is already the folder of a study: leave out --folder.")
        folder = Path(arguments.study)
        plan = read_plan(folder, arguments.imported)
    else:
        study = Study.from_file(arguments.study, arguments.imported)
        folder = Path(arguments.folder or f"runs/{study.name}")
        plan = prepare(study, folder)
    if arguments.action == "run" and arguments.plan:
        print(f"{len(plan.jobs):,} jobs are planned. Run them with: unknot study run {folder}")
        return 0
    before = signal.signal(signal.SIGTERM, _interrupt)  # a cluster that reclaims the machine sends this signal
    try:
        summary: Summary = run(plan, folder, executor, options=_as_given(arguments))
    finally:
        signal.signal(signal.SIGTERM, before)
    if not summary.stopped:
        print(f"The table: unknot study table {folder}", file=sys.stderr)
    interrupted = 130 if summary.stopped == INTERRUPTED else 1  # exit code of a program ended by Ctrl-C
    return interrupted if summary.stopped else int(bool(summary.failed))


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def _as_given(arguments: argparse.Namespace) -> str:
    """Return the options of a run that are not the defaults, as command-line arguments."""
    words = []
    for option in arguments.where:
        value = getattr(arguments, option.dest)
        if value != option.default:
            words += [option.option_strings[0], *([] if value is True else [str(value)])]
    return shlex.join([*words, *(word for module in arguments.imported for word in (imports.FLAG, module))])


def _executor(arguments: argparse.Namespace) -> "Executor":
    from unknot.studies import Local, Ray, Shard
    from unknot.studies.jobs.worker import Settings

    where: dict[str, Any] = {
        "jobs": arguments.jobs,
        "threads": arguments.threads,
        "gpus": arguments.gpus,
        "gpus_per_job": arguments.gpus_per_job,
        "settings": Settings(arguments.checkpoint_every, arguments.keep_checkpoints),
    }
    if arguments.shard:
        index, slash, count = arguments.shard.partition("/")
        if not (slash and index.isdecimal() and count.isdecimal()):
            raise ValueError(f"--shard {arguments.shard}: expected PART/COUNT, as in 3/64.")
        return Shard(int(index), int(count), **where)
    if arguments.ray:
        del where["gpus"]
        where["gpus_per_job"] = arguments.gpus_per_job if arguments.gpus else 0.0
        return Ray(arguments.ray, **where)
    return Local(**where)


def _status(arguments: argparse.Namespace) -> int:
    from unknot.studies.jobs.runner import describe
    from unknot.studies.plan import JobFolder, read_plan
    from unknot.studies.table import counts

    folder = Path(arguments.folder)
    plan = read_plan(folder)
    by_state = counts(folder, plan)
    jobs = {job.name: job for job in plan.jobs}
    shown = [f"{len(by_state[state]):,} {state}" for state in by_state]
    print(f"{plan.study.name} in {folder}: {len(jobs):,} jobs, {', '.join(shown)}")
    running = by_state.get("running", [])
    for name in running[:10]:
        if progress := JobFolder(folder, name).progress():
            how = f"{progress['phase']}, {progress['step']:,} of {progress['steps']:,}"
            print(f"  running {name} {describe(jobs[name])}: {how}")
    if len(running) > 10:
        print(f"  and {len(running) - 10:,} more")
    failed = by_state.get("failed", [])
    shared: dict[str, list[str]] = {}
    for name in failed:
        shared.setdefault(str(JobFolder(folder, name).error().get("error")), []).append(name)
    for message, names in shared.items():
        for name in names if arguments.failed else names[:3]:
            print(f"  failed {name} {describe(jobs[name])} ({JobFolder(folder, name).error().get('count')} times)")
            if arguments.failed:
                print(JobFolder(folder, name).error().get("traceback", ""))
        if len(names) > 3 and not arguments.failed:
            print(f"  and {len(names) - 3:,} more; --failed shows all with their tracebacks")
        print(f"  reason: {message}")
    return 0


def _table(arguments: argparse.Namespace) -> int:
    from unknot.studies.bundled_tables import about, bundle_table, find
    from unknot.studies.table import write_table

    sources = [find(word) for word in arguments.sources]
    if arguments.ship:
        if arguments.out:
            raise ValueError("--ship writes into the package: leave out --out.")
        path = bundle_table(sources)
        counts = about(path.stem)
        print(f"{path}: {counts['models']} of {counts['planned']} models, {counts['failed']} failed")
        return 0
    for path in write_table(sources, arguments.out):
        print(path)
    return 0


def _report(arguments: argparse.Namespace) -> int:
    from tqdm.auto import tqdm

    from unknot.studies.analyses import ANALYSES
    from unknot.studies.bundled_tables import FOLDER, find
    from unknot.studies.population import read_table
    from unknot.studies.report import make_report
    from unknot.studies.table import results

    sources = [find(word) for word in arguments.results]
    source = sources[0]
    if len(sources) > 1:
        if not arguments.out:
            raise ValueError("A report of several results needs a folder: add --out FOLDER.")
        table, folder = results(*sources), Path(arguments.out)
    elif source.is_dir():
        table, folder = results(source), source / "report"
    else:
        folder = Path() if source.parent == FOLDER else source.parent
        table, folder = read_table(source), folder / f"{source.stem}-report"
    names = arguments.only or list(ANALYSES)
    with tqdm(total=len(names), desc="analyses", disable=None, leave=False) as bar:

        def progress(name: str) -> None:
            bar.set_postfix_str(name)
            bar.update()

        report = make_report(table, names, arguments.resamples, arguments.seed, progress)
    titles = [source.stem for source in sources]
    names_of = f"{', '.join(titles[:-1])} and {titles[-1]}" if len(titles) > 1 else titles[0]
    page = report.write(arguments.out or folder, f"Results of {names_of}")
    for result in report.results:
        print(f"{result.name:<28} {result.numbers[0]}")
    for name, words in report.missing.items():
        print(f"{name:<28} not possible. {words}")
    for name, words in report.broken.items():
        print(f"{name}: could not be computed. {words}", file=sys.stderr)
    print(page)
    return 1 if report.broken else 0
