"""The report of a reproduction, as Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from fedjax_sel.papers.judging import AGAINST, ALONE, REFUTING, SIDE
from fedjax_sel.papers.paper import Claim, Figure, Paper, Table
from fedjax_sel.papers.regime import FairRegime
from fedjax_sel.report.markdown import format_lines, format_number, table


def render_report(
    paper: Paper,
    scale: str,
    seeds: Sequence[int],
    claims: Sequence[Claim],
    tables: Sequence[Table],
    figures: Sequence[Figure],
    environment: Mapping[str, Any],
    again: str,
    notes: Sequence[str] = (),
) -> str:
    """Returns the page from which a reader can judge the reproduction.

    Args:
      paper: what was reproduced.
      scale: the scale at which it ran.
      seeds: its seeds.
      claims, tables, figures: what it found; the figures are in `figures/`.
      environment: versions, device, commit.
      again: the command that reproduces it.
      notes: what a reader must know first, such as what has changed since.
    """
    parts = [
        f"# {paper.title}: reproduction at scale `{scale}`",
        f"{paper.reference}\n\nSeeds: {describe_seeds(seeds)}. To reproduce it: `{again}`.",
        *show_notes(notes),
        "## What was run",
        paper.settings.strip(),
        *show_claims(claims, paper.regime),
        "## Results",
    ]
    for t in tables:
        parts += show_table(t)
    if figures:
        parts.append("## Figures")
    for figure in figures:
        parts += [f"![{figure.name}](figures/{figure.name}.png)", f"*{figure.caption}*"]
    parts += ["## Environment", table(("what", "version"), [(k, format_number(v)) for k, v in environment.items()])]
    return "\n\n".join(parts) + "\n"


def describe_seeds(seeds: Sequence[int]) -> str:
    """Returns how many seeds there are, and which.

    >>> describe_seeds([0, 1, 2, 3]), describe_seeds([0, 2])
    ('4 (0 to 3)', '2 (0, 2)')
    """
    first, last = seeds[0], seeds[-1]
    in_a_row = len(seeds) > 2 and list(seeds) == list(range(first, last + 1))
    return f"{len(seeds)} ({f'{first} to {last}' if in_a_row else ', '.join(map(str, seeds))})"


def show_notes(notes: Sequence[str]) -> list[str]:
    """Returns the notes that a reader must know before the numbers, one paragraph each.

    >>> show_notes(["Made before FedCor changed."])
    ['> **Note.** Made before FedCor changed.']
    """
    return [f"> **Note.** {note}" for note in notes]


def show_table(shown: Table) -> list[str]:
    """Returns the heading of a table, the table, and its note if it has one."""
    return [f"### {shown.title}", table(shown.columns, shown.rows), *([shown.note] if shown.note else [])]


def show_claims(claims: Sequence[Claim], regime: FairRegime) -> list[str]:
    """Returns the paragraphs of the section on claims: how they were judged, a table, and the numbers behind each.

    The numbers behind a claim have its `id` as their heading, so that a page can link to them (`make_anchor`).

    Args:
      claims: the settled claims.
      regime: of the paper.
    """
    heads = (
        *("claim", "source", "verdict", "pooled effect, 95 % interval"),
        *("comparisons on its side (by their own interval)", "comparisons that refute it"),
    )
    rows = [(c.text, c.source, f"[**{c.verdict}**](#{make_anchor(c.id)})", *show_effect(c.effect)) for c in claims]
    behind = [
        part
        for c in claims
        for part in (
            f"#### {c.id}",
            f"{c.text}: **{c.verdict}**" + (f" ({c.reason})" if c.reason else "") + ".",
            "\n".join(line for k, v in c.statistic.items() for line in format_lines(k, v)),
        )
        if part
    ]
    return [
        "## Claims",
        f"Smallest fair regime: {regime.describe()}. Below it, nothing is judged, nor where runs or a study lack "
        "something else, which is said. A claim about several experiments is judged by their pooled effect; a single "
        "experiment can refute it, too, after Holm's correction for the number of all tests of the claim. That a "
        "difference is within a margin has to be shown by each experiment's own interval. Verdicts by construction are "
        "not counted.",
        tell_verdicts(claims),
        table(heads, rows),
        "### The numbers behind each verdict",
        *behind,
    ]


def make_anchor(claim: str) -> str:
    """Returns where a report has the numbers behind a claim, as GitHub and MyST name a heading.

    >>> make_anchor("less-seconds-to-0.9")
    'less-seconds-to-09'
    """
    return claim.replace(".", "")


def tell_verdicts(claims: Sequence[Claim]) -> str:
    """Returns a sentence that counts the verdicts, those of the paper's claims apart from those of our own."""

    def count(those: Sequence[Claim]) -> str:
        counted = Counter(c.verdict for c in those if not c.fixed)
        return ", ".join(f"{number} {verdict}" for verdict, number in sorted(counted.items())) or "none"

    groups = [count([c for c in claims if c.is_ours == ours]) for ours in (False, True)]
    told = f"Verdicts on the paper's claims: {groups[0]}" + ("" if groups[1] == "none" else f"; on ours: {groups[1]}")
    fixed = sum(bool(c.fixed) for c in claims)
    return told + (f"; not counted: {fixed} by construction" if fixed else "") + "."


def show_effect(effect: Mapping[str, Any]) -> tuple[str, str, str]:
    """Returns a pooled effect with its interval and seeds, and counts of comparisons for the claim and refuting it.

    If a claim is about each of several rivals, the effect names the rival that it is measured against.

    >>> show_effect({})
    ('—', '—', '—')
    """
    if not effect:
        return "—", "—", "—"
    return (
        format_number(effect["pooled"]) + (f", against {effect[AGAINST]}" if AGAINST in effect else ""),
        f"{effect[SIDE]} of {effect['comparisons']} ({effect[ALONE]})",
        f"{effect[REFUTING]}",
    )
