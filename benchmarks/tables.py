"""What the workloads took, as JSON and as a table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fedjax_sel.report.markdown import table

RESULTS = Path(__file__).parent / "results"


def written(found: dict[str, Any], out: Path | None, *, quick: bool) -> None:
    """Write the JSON, and print the table; quick figures are of no use and not kept unless a place is given."""
    lines = []
    for name, done in found.items():
        for row in done["rows"]:
            if "seconds_a_round" not in row:
                continue
            what = ", ".join(str(row[key]) for key in ("what", "selector", "clients", "convolution") if key in row)
            counts = ", ".join(f"{key} = {row[key]}" for key in ("N", "m") if key in row)
            lines.append(
                (
                    ", ".join(part for part in (name, what, counts) if part),
                    str(row["seeds"]),
                    f"{1e3 * row['seconds_a_round']:.3g}",
                    f"{1e3 * row['seconds_a_round_and_seed']:.3g}",
                    f"{row['seconds_of_compilation']:.1f}",
                    f"{row['flops_a_second'] / 1e9:.3g}",
                    f"{row['fraction_of_peak']:.0%}",
                    f"{row['peak_memory'] / 2**20:.0f}",
                )
            )
    columns = (
        "workload",
        "seeds",
        "ms a round",
        "and seed",
        "compilation (s)",
        "GFLOP/s",
        "of the peak",
        "peak memory (MiB)",
    )
    print(table(columns, lines))
    if out is None and not quick:
        backend = next(iter(found.values()))["environment"]["device"].split("(")[1].split(")")[0]
        out = RESULTS / f"workloads-{backend}.json"
    if out is not None:
        kept = json.loads(out.read_text()) if out.exists() else {}
        out.write_text(json.dumps({**kept, **found}, indent=1) + "\n")
        print("wrote", out)
