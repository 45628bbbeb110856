"""Runs the workloads, each in its own process, and writes the results of each as soon as it is over.

python -m benchmarks                          # all of them, into benchmarks/results/workloads-BACKEND.json
python -m benchmarks --only flute-lr,sweep
python -m benchmarks --quick                  # only checks that they run
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
NAMES = (
    "flute-lr",
    "gpfl-mlp",
    "pfl-cifar",
    "lefl-resnet",
    "population",
    "million",
    "sweep",
    "layouts",
    "unequal",
    "places",
)


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measures the workloads.")
    parser.add_argument("--only", default="", help=f"of {', '.join(NAMES)}; separated by commas")
    parser.add_argument("--quick", action="store_true", help="small versions on random rows")
    parser.add_argument("--out", type=Path, default=None, help="by default benchmarks/results/workloads-BACKEND.json")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    wanted = [name for name in given.only.split(",") if name] or list(NAMES)
    if unknown := set(wanted) - set(NAMES):
        parser.error(f"unknown workload {', '.join(sorted(unknown))}; there are: {', '.join(NAMES)}")
    if given.out and not given.out.parent.is_dir():
        parser.error(f"--out: there is no folder {given.out.parent}")
    if given.one:
        return alone(given.one, given.quick, given.out)
    from benchmarks.tables import printed, written

    found, failed = {}, []
    for name in wanted:
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            command = [sys.executable, "-m", "benchmarks", "--one", name, "--out", file.name]
            print(f"== {name}", flush=True)
            done = subprocess.run(command + ["--quick"] * given.quick, cwd=ROOT, check=False)
            failed += [name] * bool(done.returncode)
            if text := Path(file.name).read_text():  # results from before a workload failed are kept
                found[name] = json.loads(text)
                written(name, found[name], given.out, quick=given.quick, whole=not done.returncode)
    print(printed(found))
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def alone(name: str, quick: bool, out: Path) -> None:
    """Runs one workload in this process."""
    from benchmarks.measure import peak_flops, prepare
    from benchmarks.workloads import WORKLOADS, scale_here
    from fedjax_sel.report.environment import environment

    prepare()
    scale, rows = scale_here(quick), []
    peak = peak_flops()
    for row in WORKLOADS[name](scale, peak):
        rows.append(row)
        shown = {
            key: row[key]
            for key in ("what", "client_selection", "N", "cohort_size", "clients", "order", "examples", "convolution")
            if key in row
        }
        if "seconds_a_round" in row:
            shown |= {"seeds": row["seeds"], "layout": row["layout"]}
            shown["ms a round"] = round(1e3 * row["seconds_a_round"], 3)
            shown["of peak"] = round(row["fraction_of_peak"], 3)
        print("  ", shown, flush=True)
        out.write_text(json.dumps({"peak_flops": peak, "environment": environment(), "rows": rows}))


if __name__ == "__main__":
    main()
