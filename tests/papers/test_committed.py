"""Committed results are fresh: a short cell of each is run again, and verdicts are those of today's policy.

Another machine sums in another order, so that equality to the bit cannot be asked. UACS-FL's 123 cells, run again on
another processor, differed by at most 0.0045 in a seed's accuracy, at the largest learning rate and under selection by
entropy, where one cohort that differs makes others differ; device selection's by no test example and 3e-6 of loss. The
cells here select uniformly, and the tolerances are a few test examples: of 2000 (UACS-FL), 30 (Iris), 10,000
(Fashion-MNIST, MNIST) and 1000 (CIFAR-10). FedFT-EDS from scratch scatters more: a learning rate that is off by one or
two millionths gives 0.113 to 0.118 instead of 0.119, and convolutions in tiles, which sum in another order, 0.116 to
0.125.
"""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedjax_sel import History, papers
from fedjax_sel.config import build, resolve
from fedjax_sel.metrics import rounds_to
from fedjax_sel.papers.judging import VERDICTS, judge_recorded
from fedjax_sel.papers.paper import Claim
from fedjax_sel.papers.report import make_anchor, show_table
from fedjax_sel.papers.running import fingerprint_settings
from fedjax_sel.papers.settings import merge_settings
from fedjax_sel.papers.stored import judge_again, read_evidence, write_again
from fedjax_sel.papers.uacs import claims as uacs
from fedjax_sel.runs.files import read_json, to_jsonable

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
FOLDERS = sorted(path.parent.name for path in RESULTS.glob("*/summary.json"))


@dataclass(frozen=True)
class Sample:
    """A cell that is run again.

    Attributes:
      folder: of the result.
      key: of the cell.
      metric: a committed measure, a number a seed.
      read: the same from a history.
      tolerance: how far a seed may be off.
      seeds: how many of the result's first ones.
      rounds: how many are enough for the measure.
      after: the round that an accuracy along the way is of; None: the measure is of the whole run.
    """

    folder: str
    key: tuple[str, str]
    metric: str
    read: Callable[[History], np.ndarray]
    tolerance: float
    seeds: int
    rounds: int
    after: int | None = None

    def __str__(self) -> str:
        return f"{self.folder}: {', '.join(self.key)}"

    def find_committed(self) -> np.ndarray:
        """Returns the committed measure of the seeds that are run again."""
        for row in read_summary(self.folder)["results"]:
            if ((row["experiment"], row["method"]), row["metric"], row["round"]) == (self.key, self.metric, self.after):
                return np.array(row["per_seed"][: self.seeds])
        raise AssertionError(f"{self} has no {self.metric}")

    def run(self) -> np.ndarray:
        """Returns the measure as today's code computes it."""
        summary = read_summary(self.folder)
        (cell,) = [c for c in papers.load(summary["paper"]).cells(summary["scale"]) if c.key == self.key]
        config = merge_settings(cell.config, {"rounds": self.rounds, "seeds": summary["seeds"][: self.seeds]})
        try:
            return self.read(build(resolve(config)).simulate())
        except FileNotFoundError as error:
            pytest.skip(f"{self} needs data: {error}")


def read_summary(folder: str) -> dict[str, Any]:
    """Returns what a committed result says of itself."""
    return json.loads((RESULTS / folder / "summary.json").read_text(encoding="utf-8"))


def read_last(history: History) -> np.ndarray:
    """Returns the accuracy after the last round."""
    return history["accuracy"][:, -1]


SAMPLES = [
    Sample(
        "uacs-full",
        ("Experiment 2", "Random Selection"),
        "accuracy",
        read_last,
        tolerance=0.0015,
        seeds=2,
        rounds=30,
        after=30,
    ),
    Sample(
        "device_heuristic-full",
        ("Dirichlet(0.3), epsilon=0.5", "Random Selection"),
        "final_loss",
        lambda history: history["loss"][:, -1],
        tolerance=1e-4,
        seeds=2,
        rounds=50,
    ),
    Sample(
        "gpfl-small",
        ("Fashion-MNIST, 1SPC", "Random"),
        "accuracy_at_15",
        read_last,
        tolerance=0.001,
        seeds=1,
        rounds=75,
    ),
    *(
        Sample(
            "gpfl-small",
            ("Fashion-MNIST, 1SPC", method),
            "accuracy_at_15",
            read_last,
            tolerance=tolerance,
            seeds=1,
            rounds=75,
        )
        for method, tolerance in (("FedCor", 0.005), ("GPFL (its code)", 0.001))  # rounding changes FedCor's fits
    ),
    Sample(
        "gpfl-medium",
        ("CIFAR-10, 2SPC", "Random"),
        "accuracy_at_15",
        read_last,
        tolerance=0.03,
        seeds=1,
        rounds=45,
    ),
    Sample(
        "lefl-small",
        ("Fashion-MNIST, labeldir (LEFL's rate)", "FedAvg"),
        "rounds_to_0.7",
        lambda history: rounds_to(history["accuracy"], 0.7),
        tolerance=2,
        seeds=1,
        rounds=30,
    ),
    Sample(
        "lefl-medium",
        ("CIFAR-10 (10,000 examples), ResNet-20, 100 @ 10 % (LEFL's rate)", "SCAFFOLD"),
        "rounds_to_0.3",
        lambda history: rounds_to(history["accuracy"], 0.3),
        tolerance=4,
        seeds=1,
        rounds=12,
    ),
    Sample(
        "fedft_eds-small",
        ("CIFAR-10, few clients, α = 0.1", "FedAvg w/o pretraining"),
        "best_accuracy",
        lambda history: np.nanmax(history["accuracy"], axis=1),
        tolerance=0.01,
        seeds=1,
        rounds=10,
    ),
    Sample(
        "fedft_eds-medium",
        ("CIFAR-10 (10,000 examples), few clients, α = 0.1", "FedFT-RDS (10 %)"),
        "best_accuracy",
        lambda history: np.nanmax(history["accuracy"], axis=1),
        tolerance=0.03,
        seeds=1,
        rounds=50,
    ),
]


def is_declared(sample: Sample) -> bool:
    """Whether the result says itself that its numbers are not what today's code computes."""
    return bool(read_summary(sample.folder).get("stale"))


def test_every_committed_result_has_a_cell_that_is_run_again():
    assert sorted({sample.folder for sample in SAMPLES}) == FOLDERS


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_a_committed_cell_is_what_todays_code_computes_or_its_result_says_that_it_is_not(sample):
    off = np.abs(sample.run() - sample.find_committed()).max()
    if is_declared(sample):
        assert off > sample.tolerance, "fresh: it need not be declared stale"
    else:
        assert off <= sample.tolerance, "made by other code: make it again, or declare it stale in its summary's notes"


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_committed_result_names_its_commit_and_says_what_is_wrong_with_it(folder):
    summary, text = read_summary(folder), (RESULTS / folder / "report.md").read_text(encoding="utf-8")
    notes = " ".join(summary["notes"])
    commits = {cell["commit"] for cell in summary["cells"]}
    every = [one for commit in commits for one in commit.split(" then ")]  # a cell that was resumed at another one
    assert all(len(commit.removesuffix("+changes")) == 40 for commit in every)
    assert summary["environment"]["dirty"] == summary["environment"]["commit"].endswith("+changes")
    if any(commit.endswith("+changes") for commit in commits):
        assert "no commit says what ran" in notes
    if any(cell["settings"] is None for cell in summary["cells"]):
        assert "by an earlier version" in notes
    if summary.get("stale"):
        assert summary["stale"] in notes
    for note in summary["notes"]:
        assert f"> **Note.** {note}" in text


@pytest.mark.parametrize("folder", sorted({f for f in FOLDERS if any(c["settings"] for c in read_summary(f)["cells"])}))
def test_a_committed_result_has_todays_settings(folder):
    summary = read_summary(folder)
    cells = papers.load(summary["paper"]).cells(summary["scale"])
    today = {cell.key: fingerprint_settings(resolve({"seeds": len(summary["seeds"]), **cell.config})) for cell in cells}
    ran = {(cell["experiment"], cell["method"]): cell["settings"] for cell in summary["cells"]}
    missing = {(experiment, method) for experiment, method in summary.get("unfinished", []) if experiment != "study"}
    assert ran == {key: settings for key, settings in today.items() if key not in missing}


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_committed_result_says_which_of_todays_cells_it_has_not_run(folder):
    summary = read_summary(folder)
    today = {cell.key for cell in papers.load(summary["paper"]).cells(summary["scale"])}
    ran = {(cell["experiment"], cell["method"]) for cell in summary["cells"]}
    assert ran <= today
    if today - ran:
        assert any("not run yet" in note or "is not finished" in note for note in summary["notes"])


@pytest.mark.parametrize("folder", FOLDERS)
def test_committed_verdicts_are_those_of_todays_policy(folder):
    summary = read_summary(folder)
    paper = papers.load(summary["paper"])
    assert summary["regime"] == to_jsonable(vars(paper.regime))
    again = [to_jsonable(vars(claim)) for claim in judge_again(RESULTS / folder)]
    verdicts = {claim["id"]: claim["verdict"] for claim in again}
    assert {claim["id"]: claim["verdict"] for claim in summary["claims"]} == verdicts
    assert [claim["effect"].keys() for claim in summary["claims"]] == [claim["effect"].keys() for claim in again]
    text = (RESULTS / folder / "report.md").read_text(encoding="utf-8")
    for found in summary["claims"]:
        claim = Claim(**found)
        linked = f"[**{claim.verdict}**](#{make_anchor(claim.id)})"
        assert f"| {claim.text} | {claim.source} | {linked} |" in text.replace("\\|", "|")


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_committed_claim_records_what_its_verdict_follows_from(folder):
    claims = [claim for claim in read_summary(folder)["claims"] if claim["effect"]]
    assert claims
    for claim in claims:
        found = judge_recorded(claim["asked"])
        again, effect = to_jsonable(found.effect), dict(claim["effect"])
        pooled = {"seeds" if name == "repeats" else name: value for name, value in effect.pop("pooled").items()}
        assert again.pop("pooled") == pytest.approx(pooled)
        assert again == effect
        if claim["verdict"] in VERDICTS:
            assert claim["verdict"] == found.verdict


@pytest.mark.parametrize("folder", FOLDERS)
def test_committed_tables_are_those_of_todays_policy(folder):
    """Those that stored numbers give, so that no table shows a verdict under an earlier policy."""
    summary, text = read_summary(folder), (RESULTS / folder / "report.md").read_text(encoding="utf-8")
    tables = papers.load(summary["paper"]).tables(summary["scale"], read_evidence(RESULTS / folder, may_lack=True))
    shown = [one for one in tables if f"### {one.title}\n" in text]
    assert shown
    for one in shown:
        assert "\n\n".join(show_table(one)) in text, one.title


def test_a_report_that_is_judged_again_has_todays_tables(tmp_path):
    folder = shutil.copytree(RESULTS / "uacs-full", tmp_path / "uacs-full")
    report = (folder / "report.md").read_text(encoding="utf-8")
    (folder / "report.md").write_text(report.replace("| default | reproduced:", "| default | undecided:"))
    write_again(folder, "today")
    assert (folder / "report.md").read_text(encoding="utf-8") == report
    assert read_json(folder / "summary.json") == read_summary("uacs-full") | {"judged_at": "today"}


def test_a_verdict_that_is_not_what_its_numbers_give_is_found(tmp_path):
    """Of claims that need individual rounds, too, which are not committed."""
    folder = shutil.copytree(RESULTS / "uacs-full", tmp_path / "uacs-full", ignore=shutil.ignore_patterns("figures"))
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    (claim,) = [one for one in summary["claims"] if one["id"] == "ahead-at-equal-flops"]
    assert claim["verdict"] == "reproduced"
    claim["verdict"] = "undecided"
    asked = claim["asked"]
    (folder / "summary.json").write_text(json.dumps(summary))
    assert {c.id: c.verdict for c in judge_again(folder)}["ahead-at-equal-flops"] == "reproduced"
    claim["asked"] = {}  # as of earlier versions
    (folder / "summary.json").write_text(json.dumps(summary))
    with pytest.raises(ValueError, match="ahead-at-equal-flops did not record what it compares; run the paper again"):
        judge_again(folder)
    assert asked["question"] == "larger"


PAGES = {
    "uacs": ("uacs-full",),
    "device-heuristic": ("device_heuristic-full",),
    "fedft-eds": ("fedft_eds-medium",),
    "gpfl": ("gpfl-small", "gpfl-medium"),
    "lefl": ("lefl-small", "lefl-medium"),
}
"""The results that each page tells."""

UNLINKED = {"uacs": 14, "device-heuristic": 6, "fedft-eds": 2, "gpfl": 7, "lefl": 0}
"""How often a page names a verdict that is no claim's: under other settings, measures or runs, which tables have."""


@pytest.mark.parametrize("page", PAGES)
def test_a_page_links_every_verdict_to_its_claim_and_leaves_none_out(page):
    text = (ROOT / "docs" / "results" / f"{page}.md").read_text(encoding="utf-8")
    claims = {
        f"../../benchmarks/results/{folder}/report.md#{make_anchor(claim['id'])}": claim["verdict"]
        for folder in PAGES[page]
        for claim in read_summary(folder)["claims"]
    }
    links = dict(re.findall(r"^\[(.+?)\]: (\S+)$", text, flags=re.MULTILINE))
    told = [(links[label], " ".join(verdict.split())) for verdict, label in re.findall(r"\[([^][]+)\]\[(.+?)\]", text)]
    assert [(link, claims[link]) for link, _ in told] == told
    assert {link for link, _ in told} == set(links.values())
    assert {link for link, verdict in claims.items() if verdict != "not judged at this scale"} <= set(links.values())
    rest = re.sub(r"\[[^][]+\]\[.+?\]", "", text)
    assert len(re.findall(r"\b(?:reproduced|undecided|by\s+construction)\b", rest)) == UNLINKED[page]


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_first_page_counts_a_reports_verdicts(folder):
    counts = {ours: dict.fromkeys(ORDER, 0) for ours in (False, True)}
    for claim in read_summary(folder)["claims"]:
        counts[claim["source"].startswith("ours")][claim["verdict"]] += 1
    said = [f"{counts[False][one]}{f' + {counts[True][one]}' if counts[True][one] else ''}" for one in ORDER]
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    (line,) = re.findall(rf"^\| \[.+\]\(benchmarks/results/{folder}/report\.md\) \| (.+) \|$", page, flags=re.MULTILINE)
    assert line.split(" | ") == said


def test_the_first_page_counts_the_claims_whose_effect_has_no_closed_end():
    open_ = []
    for folder in FOLDERS:
        for claim in read_summary(folder)["claims"]:
            pooled = claim["effect"].get("pooled", {})
            if claim["verdict"] in ORDER[:3] and pooled.get("low") is None and pooled.get("high") is None:
                open_.append((folder, claim["id"]))
    assert {folder for folder, _ in open_} == {"device_heuristic-full", "lefl-small"}
    words = ("Eight", "Nine", "Ten", "Eleven", "Twelve")
    page = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert f"{words[len(open_) - 8]} claims, on device selection and LEFL, have no interval, or one" in page


ORDER = ("reproduced", "not reproduced", "undecided", "by construction", "not judged at this scale")
"""The verdicts, as the first page's table has them."""


def test_claims_of_uacs_that_measures_alone_give_are_todays():
    histories = read_evidence(RESULTS / "uacs-full").histories
    again = [
        uacs.judge_random(histories),
        *uacs.judge_gradient_norm(histories),
        uacs.judge_superior(histories),
        uacs.judge_exploration(histories),
        uacs.judge_boundary(histories),
        uacs.judge_linear(histories),
    ]
    committed = {claim["id"]: claim for claim in read_summary("uacs-full")["claims"]}
    for claim in again:
        found = to_jsonable(vars(claim))
        assert committed[claim.id]["verdict"] == claim.verdict
        for name, value in found["effect"].pop("pooled").items():
            assert committed[claim.id]["effect"]["pooled"][name] == pytest.approx(value)
        assert found["effect"].items() <= committed[claim.id]["effect"].items()
    assert len(again) == 7


def read_table(text, title):
    """The rows of a Markdown table after its title, without the first two."""
    rows = []
    for line in text[text.index(title) :].split("\n")[1:]:
        if line.startswith("|"):
            rows.append([cell.strip() for cell in line.strip("|").split("|")])
        elif rows:
            break
    return rows[2:]


GENERATOR = (
    "default; amplitude 0.75; amplitude 0.375; amplitude 0.25; amplitude 0.125; amplitude 0; strip 0.075; strip 0.3; "
    "margin 0.1; margin 0.4; box 0.05; box 0.2"
)
OTHERS = (
    "as above; m = 3; m = 12; learning rate 0.03; learning rate 0.3; 1 local epoch; 10 boundary clients, m = 10; "
    "logistic regression; logistic regression, amplitude 0.125; logistic regression, amplitude 0"
)


@pytest.mark.parametrize(
    ("reported", "told", "columns", "claims"),
    [
        ("How the verdicts depend on the generator", "varied one at a time", GENERATOR, 6),
        ("How the verdicts depend on the other settings", "We varied the other settings", OTHERS, 9),
    ],
)
def test_the_verdicts_on_uacs_under_other_settings_are_those_of_the_report(reported, told, columns, claims):
    letters = {"reproduced": "R", "not reproduced": "N", "undecided": "U", "not judged": "–"}
    report = read_table((RESULTS / "uacs-full" / "report.md").read_text(encoding="utf-8"), reported)
    page = read_table((ROOT / "docs" / "understand" / "verdicts.md").read_text(encoding="utf-8"), told)
    found = {row[0]: [letters.get(cell.partition(":")[0]) for cell in row[1:]] for row in report}
    assert len(page) == claims
    for number, (claim, *shown) in enumerate(page):
        assert shown == [found[name][number] for name in columns.split("; ")], claim
