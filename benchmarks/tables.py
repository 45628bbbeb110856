"""Results as JSON and as tables: python -m benchmarks.tables prints the tables of the documentation."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from fedjax_sel.report.markdown import table

RESULTS = Path(__file__).parent / "results"

COLUMNS = (
    "workload",
    "seeds",
    "ms a round",
    "ms a round and seed",
    "compilation (s)",
    "GFLOP/s",
    "of the peak",
    "memory (MiB)",
)

PEERS = {
    "torch": ("PyTorch loop", ""),
    "torch_func": ("torch.func", ""),
    "fedjax": ("FedJAX", "fedjax"),
    "pfl": ("pfl-research", "pfl"),
    "flower": ("Flower", "flwr"),
    "blazefl": ("BlazeFL", "blazefl"),
}
"""The peers' names in the documentation, and the packages whose versions stand beside them."""


def figure(number: float) -> str:
    """Returns a number as text, with three digits and without powers of ten."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def written(name: str, done: dict[str, Any], out: Path | None, *, quick: bool, whole: bool) -> None:
    """Writes a workload's results to the JSON; quick ones are useless, and dropped unless `out` is given.

    Those of a workload that failed, which are not `whole`, replace no others.
    """
    if out is None:
        if quick:
            return
        backend = done["environment"]["device"].split("(")[1].split(")")[0]
        out = RESULTS / f"workloads-{backend}.json"
    kept = json.loads(out.read_text()) if out.exists() else {}
    if name in kept and not whole:
        print(f"{name} failed; {out} keeps what it had", flush=True)
        return
    out.write_text(json.dumps({**kept, name: done}, indent=1) + "\n")
    print("wrote", out, flush=True)


def printed(found: dict[str, Any]) -> str:
    """Returns a table with one row per run."""
    lines = []
    for name, done in found.items():
        for row in done["rows"]:
            if "seconds_a_round" not in row:
                continue
            what = [
                str(row[key])
                for key in ("what", "client_selection", "clients", "order", "examples", "convolution")
                if key in row
            ]
            counts = [f"{name} = {row[key]}" for key, name in (("N", "N"), ("cohort_size", "m")) if key in row]
            lines.append(
                (
                    ", ".join([name, *what, *counts]),
                    str(row["seeds"]),
                    figure(1e3 * row["seconds_a_round"]),
                    figure(1e3 * row["seconds_a_round_and_seed"]),
                    f"{row['seconds_of_compilation']:.1f}",
                    f"{row['flops_a_second'] / 1e9:.3g}",
                    f"{row['fraction_of_peak']:.0%}",
                    f"{row['peak_memory'] / 2**20:.0f}",
                )
            )
    return table(COLUMNS, lines)


def population(found: dict[str, Any]) -> str:
    """Returns milliseconds per round by selector and number of clients, and the largest program's estimated memory."""
    rows = [row for row in found["population"]["rows"] if "seconds_a_round" in row]
    sizes = sorted({row["N"] for row in rows})
    lines = []
    for selector in dict.fromkeys(row["client_selection"] for row in rows):
        mine = {row["N"]: row for row in rows if row["client_selection"] == selector}
        spent = [figure(1e3 * mine[n]["seconds_a_round"]) if n in mine else "—" for n in sizes]
        lines.append((f"`{selector}`", *spent, f"{mine[max(mine)]['estimated_memory'] / 2**20:.0f}"))
    return table(("selector, ms a round", *(f"N = {n:,}" for n in sizes), "estimated memory, last N (MiB)"), lines)


def peers(found: dict[str, Any]) -> str:
    """Returns how many times longer than ours a round of each peer takes, and its accuracy, both as medians."""
    lines = []
    for name, done in sorted(found.items()):
        turns = done["turns"]
        ours = [turn["fedjax_sel"] for turn in turns]
        spent = 1e3 * median(one["seconds_a_round"] for one in ours)
        cells = [f"{name}, {ours[0]['rounds']} rounds", f"{figure(spent)} ms ({median_accuracy(ours):.3f})"]
        for peer in PEERS:
            theirs = [turn[peer] for turn in turns if peer in turn]
            right = [one for one in theirs if "failed" not in one]
            if right:
                times = "turn" if len(right) == 1 else "turns"
                said = f"{done['ratios'][peer]:.3g}× ({median_accuracy(right):.3f}; {len(right)} {times})"
            else:
                said = theirs[-1]["failed"] if theirs else "not run"
            cells.append(said)
        lines.append(cells)
    turns = [turn for done in found.values() for turn in done["turns"]]
    return table(("workload", "fedjax_sel", *(name_peer(peer, turns) for peer in PEERS)), lines)


def name_peer(peer: str, turns: Sequence[dict[str, Any]]) -> str:
    """Returns a peer's name and the versions of it that ran."""
    name, package = PEERS[peer]
    ran = [turn[peer]["versions"][package] for turn in turns if package and "versions" in turn.get(peer, {})]
    return " ".join([name, " and ".join(dict.fromkeys(ran))]).strip()


def median_accuracy(turns: Sequence[dict[str, Any]]) -> float:
    """Returns the median accuracy over turns."""
    return median(turn["accuracy"] for turn in turns)


def documented() -> list[str]:
    """Returns the tables of docs/results/speed.md (the README shows the first), from the committed results."""
    side_by_side = json.loads((RESULTS / "peers.json").read_text())
    found = json.loads((RESULTS / "workloads-cpu.json").read_text())
    on_gpu = json.loads((RESULTS / "workloads-gpu.json").read_text())
    alone = ("flute-lr", "gpfl-mlp", "pfl-cifar", "lefl-resnet", "sweep")
    both = [printed({name: there[name] for name in alone}) for there in (found, on_gpu)]
    return [peers(side_by_side), *both, population(found)]


if __name__ == "__main__":
    print("\n\n".join(documented()))
