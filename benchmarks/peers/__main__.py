"""Compares with other simulators on workloads 1 to 3 and on BlazeFL's own: the same rows, owners, cohorts and steps.

python -m benchmarks.peers            # makes the environments, runs all in turn, writes benchmarks/results/peers.json
python -m benchmarks.peers --only torch,fedjax --works flute-lr --repeats 3
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.timing import steady

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RESULTS = HERE.parent / "results" / "peers.json"
CACHE = Path(os.environ.get("FEDJAX_SEL_CACHE") or "~/.cache/fedjax_sel").expanduser() / "peers"

TORCH = "torch==2.15.0"
PEERS = {
    "torch": ("torch_loop.py", (TORCH, "numpy")),
    "torch_func": ("torch_func.py", (TORCH, "numpy")),
    "fedjax": (
        "fedjax_loop.py",
        (
            "fedjax==0.0.17",
            "jax==0.4.20",
            "jaxlib==0.4.20",
            "numpy<2",
            "scipy<1.13",
            "dm-haiku<0.0.13",
            "setuptools<81",
        ),
    ),
    "pfl": ("pfl_research.py", (TORCH, "pfl[pytorch]")),
    "flower": ("flower_simulation.py", (TORCH, "flwr[simulation]")),
    "blazefl": ("blazefl_simulation.py", (TORCH, "blazefl[contrib,reproducibility]")),
}
"""The script and packages of each peer. FedJAX also works with newer versions of JAX, to 0.5.3, and is no faster."""

FREE_THREADED = {"blazefl": (3, 14)}
"""The oldest Python of peers that need a free-threaded one; the newest on the path makes their environments."""

WORKS = ("flute-lr", "gpfl-mlp", "pfl-cifar", "blazefl-cifar")
LIMIT = 600
"""The most seconds that one peer may take for one work."""


def environment(name: str) -> Path:
    """Returns the interpreter of a peer's environment, which is made if it does not exist yet."""
    place = CACHE / name
    python, base = place / "bin" / "python", find_python(name)
    ready, made = place / "ready", "\n".join([base, *PEERS[name][1]])
    if not ready.exists() or ready.read_text() != made:
        print(f"making the environment of {name}", flush=True)
        subprocess.run([base, "-m", "venv", "--clear", place], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *PEERS[name][1]], check=True)
        ready.write_text(made)
    return python


def find_python(name: str) -> str:
    """Returns the interpreter for a peer's environment: ours, or a free-threaded one.

    Raises:
      FileNotFoundError: it needs a free-threaded one, and none on the path is new enough.
    """
    if name not in FREE_THREADED:
        return sys.executable
    major, oldest = FREE_THREADED[name]
    for minor in range(20, oldest - 1, -1):
        found = shutil.which(f"python{major}.{minor}t")
        if found and not subprocess.run([found, "--version"], capture_output=True, check=False).returncode:
            return found
    raise FileNotFoundError(f"no free-threaded Python {major}.{oldest} or newer is on the path")


def peer(name: str, work: Path, out: Path, rounds: int) -> dict[str, Any]:
    """Returns a peer's result for a number of rounds, or what went wrong."""
    try:
        python = environment(name)
        without_gil = ["-Xgil=0"] * (name in FREE_THREADED)  # also where a package does not declare that it can do so
        command = [python, *without_gil, HERE / PEERS[name][0], work, out]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False, cwd=HERE)
    except subprocess.TimeoutExpired:
        return {"failed": f"not finished after {LIMIT} s"}
    except (subprocess.CalledProcessError, FileNotFoundError) as error:
        return {"failed": f"its environment cannot be made ({error})"}
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or ["no message"])[-1]}
    found = json.loads(out.read_text())
    return {"seconds_a_round": steady(found.pop("seconds"), rounds), "rounds": rounds, **found}


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers", description="Runs the workloads in other simulators, too."
    )
    parser.add_argument("--only", default=",".join(PEERS), help="peers, separated by commas")
    parser.add_argument("--works", default=",".join(WORKS), help="workloads, separated by commas")
    parser.add_argument("--repeats", type=int, default=3, help="turns; a ratio is of one turn, their median is told")
    parser.add_argument("--quick", action="store_true", help="random rows and few rounds")
    parser.add_argument("--ours", nargs=2, metavar=("WORK", "OUT"), help=argparse.SUPPRESS)
    parser.add_argument("--export", nargs=2, metavar=("WORK", "FOLDER"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.ours or given.export:
        from benchmarks.measure import prepare
        from benchmarks.peers import work

        prepare()
        if given.export:
            work.export(given.export[0], Path(given.export[1]), given.quick)
        else:
            Path(given.ours[1]).write_text(json.dumps(work.ours(given.ours[0], given.quick)))
        return
    names, works, found = given.only.split(","), given.works.split(","), {}
    for what, chosen, known in (("peer", names, PEERS), ("workload", works, WORKS)):
        if unknown := set(chosen) - set(known):
            parser.error(f"unknown {what} {', '.join(sorted(unknown))}; there are: {', '.join(known)}")
    if given.repeats < 1:
        parser.error(f"--repeats is {given.repeats}; it must be at least 1")
    for name in works:
        with tempfile.TemporaryDirectory() as scratch:
            call("--export", name, scratch, quick=given.quick)
            source, out = Path(scratch) / f"{name}.npz", Path(scratch) / "out.json"
            for _ in range(given.repeats):
                call("--ours", name, str(out), quick=given.quick)
                turn = {"fedjax_sel": json.loads(out.read_text())}
                rounds = turn["fedjax_sel"]["rounds"]
                turn |= {other: peer(other, source, out, rounds) for other in names}
                print(name, {who: said(done) for who, done in turn.items()}, flush=True)
                found.setdefault(name, []).append(turn)
                if not given.quick:
                    keep(name, turn)
    for name, turns in found.items():
        print(name, ratios(turns))


def keep(name: str, turn: dict[str, Any]) -> None:
    """Adds a turn of a work to its results; those of another environment (machine, versions, commit) are dropped."""
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    here = turn["fedjax_sel"].pop("environment")
    before = kept.get(name, {})
    turns = [*(before["turns"] if before.get("environment") == here else ()), turn]
    kept[name] = {"environment": here, "turns": turns, "ratios": ratios(turns)}
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n")


def call(flag: str, *rest: str, quick: bool) -> None:
    """Runs this module in a separate process."""
    command = [sys.executable, "-m", "benchmarks.peers", flag, *rest, *["--quick"] * quick]
    subprocess.run(command, cwd=ROOT, check=True)


def said(done: dict[str, Any]) -> str:
    """Returns a result in a few words."""
    if "failed" in done:
        return f"failed: {done['failed']}"
    return f"{1e3 * done['seconds_a_round']:.3g} ms, accuracy {done['accuracy']:.3f}"


def ratios(turns: list[dict[str, Any]]) -> dict[str, float]:
    """Returns how many times longer a round of each peer takes: the median over its turns that did not fail."""
    out = {}
    for name in dict.fromkeys(name for turn in turns for name in turn if name != "fedjax_sel"):
        done = [turn for turn in turns if name in turn and "failed" not in turn[name]]
        found = [turn[name]["seconds_a_round"] / turn["fedjax_sel"]["seconds_a_round"] for turn in done]
        if found:
            out[name] = median(found)
    return out


if __name__ == "__main__":
    main()
