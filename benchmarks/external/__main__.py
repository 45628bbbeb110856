"""Runs the settings of Flower's `niid_bench`, and writes the page that compares them with its table.

python -m benchmarks.external --out RUNS                  # all that the committed JSON lacks; resumes where it stopped
python -m benchmarks.external --out RUNS --stages fedavg,others
python -m benchmarks.external --out RUNS --page           # benchmarks/results/niid-bench.json, docs/results/external.md
python -m benchmarks.external --page                      # the page again, from the committed JSON

Data: `tfds:mnist`, `tfds:fashion_mnist`, `tfds:cifar10` in `$TFDS_DATA_DIR`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.external.settings import MOST_SEEDS, ROUNDS, SEEDS, STAGES, Cell, configure, order_runs
from fedjax_sel.catalog import check_name

JSON = "niid-bench.json"
ROOT = Path(__file__).parents[2]


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.external", description="Runs Flower's niid_bench.", epilog=__doc__
    )
    parser.add_argument("--out", type=Path, help="folder of the runs")
    parser.add_argument("--stages", default=",".join(STAGES), help=f"of {', '.join(STAGES)}; separated by commas")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="how many")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="fewer for a trial, which the page does not show")
    parser.add_argument("--cells", default="", help="names of cells, as mnist-iid-fedavg; by default all of the stages")
    parser.add_argument("--page", action="store_true", help="write JSON and page, and run nothing")
    given = parser.parse_args()
    stages = given.stages.split(",")
    if unknown := set(stages) - set(STAGES):
        parser.error(f"unknown stage {', '.join(sorted(unknown))}; there are: {', '.join(STAGES)}")
    if given.page:
        return write(given.out)
    if given.out is None:
        parser.error("--out is needed, a folder for the runs")
    for option, number, most in (("--seeds", given.seeds, MOST_SEEDS), ("--rounds", given.rounds, ROUNDS)):
        if not 1 <= number <= most:
            parser.error(f"{option} is {number}; it must be from 1 to {most}")
    known = [cell.name for stage in stages for cell in STAGES[stage]]
    names = given.cells.split(",") if given.cells else known
    try:
        for name in names:
            check_name("cell", name, known)
    except ValueError as error:
        parser.error(str(error))
    wanted = [(cell, seed) for cell, seed in order_runs(stages, range(given.seeds)) if cell.name in names]
    run_all(given.out, wanted, given.rounds)


def run_all(out: Path, wanted: Sequence[tuple[Cell, int]], rounds: int) -> None:
    """Runs all cells that are neither finished nor in the committed JSON, and writes the JSON after every run.

    Raises:
      SystemExit: a signal ended a run; completed rounds are kept.
    """
    from fedjax_sel.runs.prepare import prepare_jax

    prepare_jax(cache=True)
    from benchmarks.external.results import collect, is_done, join_runs, locate, name_run
    from fedjax_sel.runs.execute import execute
    from fedjax_sel.runs.files import write_json

    there = {name_run(run) for run in join_runs(collect(out), read_kept())["runs"]} if rounds == ROUNDS else set()
    for number, (cell, seed) in enumerate(wanted, start=1):
        place, began = locate(out, cell, seed), time.monotonic()
        if (cell.data, cell.partition, cell.method, cell.mu, seed) in there or is_done(place, rounds):
            continue
        history = execute(
            f"{number}/{len(wanted)} {cell.name}, seed {seed}",
            configure(cell, seed, rounds),
            place,
            figures=False,
            keep_checkpoints=rounds < ROUNDS,  # from which a trial goes on to all rounds
            say=partial(print, flush=True),
            one_of=out,
        )
        write_json(out / JSON, collect(out))
        best = 100 * float(max(history["accuracy"][0]))
        print(f"{cell.name}, seed {seed}: best {best:.2f} %, {(time.monotonic() - began) / 60:.1f} min", flush=True)


KEPT = ROOT / "benchmarks" / "results" / JSON


def read_kept() -> dict[str, Any] | None:
    """Returns the committed JSON, in which runs of several machines come together; None if there is none."""
    return json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else None


def write(out: Path | None) -> None:
    """Writes the page and its figure, and first adds runs, if given, to the committed JSON."""
    from benchmarks.external.page import draw, render
    from fedjax_sel.runs.files import write_figure, write_json, write_text

    if out is not None:
        from benchmarks.external.results import collect, join_runs

        write_json(KEPT, join_runs(collect(out), read_kept()))
    found = json.loads(KEPT.read_text(encoding="utf-8"))
    write_text(ROOT / "docs" / "results" / "external.md", render(found))
    write_figure(KEPT.with_suffix(".png"), draw(found))


if __name__ == "__main__":
    main()
