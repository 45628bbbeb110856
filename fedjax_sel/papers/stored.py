"""Judges a reproduction again from what it wrote, `summary.json` and its studies, without running anything."""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from pathlib import Path

from fedjax_sel import papers
from fedjax_sel.papers.earlier import read_cells
from fedjax_sel.papers.judging import judge_recorded, settle_claims
from fedjax_sel.papers.paper import Claim, Evidence, Finished
from fedjax_sel.papers.regime import Conditions
from fedjax_sel.papers.report import show_claims, show_notes, show_table
from fedjax_sel.runs.files import read_json, write_json, write_text


def read_evidence(folder: Path, *, may_lack: bool = False) -> Evidence:
    """Returns the evidence in a reproduction's folder: the measures of the cells that it ran, and its studies.

    Args:
      folder: of the reproduction.
      may_lack: as in `StoredCell`.
    """
    summary = read_json(folder / "summary.json")
    cells = read_cells(summary, papers.load(summary["paper"]).cells(summary["scale"]), may_lack=may_lack)
    studies = {path.stem: read_json(path)["found"] for path in sorted((folder / "studies").glob("*.json"))}
    return Evidence(Finished(cells), Finished(studies))


def judge_again(folder: Path) -> list[Claim]:
    """Returns the claims in a reproduction's folder under today's policy, from its stored numbers.

    A claim that needs individual rounds, which are not stored, keeps its text and its numbers; its verdict and its
    effect follow from the differences that it recorded.

    Raises:
      ValueError: an earlier version wrote such a claim, without these differences: the paper has to be run again.
    """
    summary = read_json(folder / "summary.json")
    paper = papers.load(summary["paper"])
    conditions = {name: Conditions(**had) for name, had in summary["conditions"].items()}
    try:
        claims = paper.claims(summary["scale"], read_evidence(folder))
    except KeyError:  # some need individual rounds
        again = {claim.id: claim for claim in paper.claims(summary["scale"], read_evidence(folder, may_lack=True))}
        stored = [Claim(**found) for found in summary["claims"]]
        claims = [again.pop(claim.id, None) or judge_stored(claim) for claim in stored] + list(again.values())
    return settle_claims(claims, paper.regime, conditions, finished="unfinished" not in summary)


def judge_stored(claim: Claim) -> Claim:
    """Returns a stored claim, not settled, with today's verdict on the differences that it recorded.

    One that rests on no comparison over seeds keeps its verdict.

    Raises:
      ValueError: it rests on one, but did not record it.
    """
    if not claim.asked:
        if claim.effect:
            raise ValueError(f"{claim.id} did not record what it compares; run the paper again")
        return replace(claim, reason="")
    found = judge_recorded(claim.asked)
    return replace(claim, verdict=found.verdict, effect=found.effect, asked=found.asked, reason="")


def write_again(folder: Path, commit: str | None) -> None:
    """Writes today's verdicts, and today's text on what was run, into a reproduction's `summary.json` and report.

    Tables are made again from the stored numbers; those that need individual rounds stay as they are.

    Args:
      folder: of the reproduction; its numbers and figures stay as they are.
      commit: the commit whose policy is applied, for the summary.
    """
    claims, place = judge_again(folder), folder / "summary.json"
    summary = read_json(place)
    paper = papers.load(summary["paper"])
    summary |= {"claims": [vars(claim) for claim in claims], "regime": asdict(paper.regime), "judged_at": commit}
    text = (folder / "report.md").read_text(encoding="utf-8")
    _, _, after = text.partition("\n## Results\n")
    head, _, _ = text.partition("\n## What was run\n")
    head = "\n\n".join(part for part in head.split("\n\n") if not part.startswith("> **Note.**")).rstrip()
    parts = [head, *show_notes(summary["notes"]), "## What was run", paper.settings.strip()]
    for one in paper.tables(summary["scale"], read_evidence(folder, may_lack=True)):
        after = replace_section(after, f"### {one.title}", "\n\n".join(show_table(one)))
    parts += [*show_claims(claims, paper.regime), f"## Results\n{after}"]
    write_text(folder / "report.md", "\n\n".join(parts))
    write_json(place, summary)


def replace_section(text: str, heading: str, section: str) -> str:
    r"""Returns Markdown with a section, from its heading to the next one, replaced; unchanged if it lacks the section.

    >>> print(replace_section("## A\n\nold\n\n## B\n", "## A", "## A\n\nnew"))
    ## A
    <BLANKLINE>
    new
    <BLANKLINE>
    ## B
    <BLANKLINE>
    """
    found = re.search(rf"^{re.escape(heading)}\n.*?(?=^#+ |\Z)", text, re.MULTILINE | re.DOTALL)
    return text if found is None else f"{text[: found.start()]}{section}\n\n{text[found.end() :]}"
