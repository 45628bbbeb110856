"""A reproduction that is not finished is reported on by what is there, and by nothing else."""

import json
import random
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedjax_sel import papers
from fedjax_sel.cli import main
from fedjax_sel.engine import driver
from fedjax_sel.papers.judging import settle_claims
from fedjax_sel.papers.paper import Evidence, Figure, Finished, NotRun, join, locate_cell
from fedjax_sel.papers.regime import Conditions, merge_conditions
from fedjax_sel.papers.stored import read_evidence
from fedjax_sel.papers.writing import draw_figure
from fedjax_sel.runs.lock import lock_folder

COMMITTED = Path(__file__).parents[2] / "benchmarks" / "results"
MISSING = ("Experiment 2", "Round-Robin (control)"), ("Experiment 3", "Entropy+Eps-Greedy")


@pytest.fixture(scope="module")
def whole(reproduced, tmp_path_factory):
    return shutil.copytree(reproduced[0], tmp_path_factory.mktemp("copy") / "uacs")


@pytest.fixture
def part(whole, tmp_path, monkeypatch):
    """The same without two cells, reports and study, where no round can be run."""
    out = tmp_path / "part"
    shutil.copytree(whole, out)
    for cell in papers.load("uacs").cells("smoke"):
        if cell.key in MISSING:
            shutil.rmtree(locate_cell(out, cell))
    for name in ("summary.json", "report.md"):
        (out / name).unlink()
    shutil.rmtree(out / "figures")

    def refused(*_, **__):
        raise AssertionError("a round was run")

    monkeypatch.setattr(driver, "run_chunk", refused)
    return out


def read(folder):
    return json.loads((folder / "summary.json").read_text(encoding="utf-8"))


def test_what_is_finished_is_reported_on_while_another_process_runs_the_rest(whole, part):
    shutil.rmtree(part / "studies")
    studies = ("generator", "distances")
    with lock_folder(part):
        returned = papers.reproduce("uacs", scale="smoke", out=part, finished=True)
    there, complete = read(part), read(whole)
    assert (
        returned["unfinished"] == there["unfinished"] == [*map(list, MISSING), *(["study", name] for name in studies)]
    )
    assert there["notes"][0].startswith(
        "This reproduction is not finished: 13 of 15 cells are there; missing studies: generator, distances. "
    )
    assert f"> **Note.** {there['notes'][0][:40]}" in (part / "report.md").read_text(encoding="utf-8")
    missing = [one for one in complete["results"] if (one["experiment"], one["method"]) in MISSING]
    assert missing
    assert there["results"] == [one for one in complete["results"] if one not in missing]
    assert there["cells"] == [one for one in complete["cells"] if (one["experiment"], one["method"]) not in MISSING]
    kept = {claim["id"] for claim in there["claims"]}
    need_missing = {"random-underperforms", "superior-to-each", "exploring-pays"}
    need_missing |= {"gradient-norm-comparable", "entropy-faster-than-gradient-norm"}
    assert kept == {claim["id"] for claim in complete["claims"]} - need_missing
    assert all(claim in complete["claims"] for claim in there["claims"])
    assert not (part / "figures" / "accuracy.png").exists(), "it has a line for every method"
    assert "accuracy.png" not in (part / "report.md").read_text(encoding="utf-8")
    assert "unfinished" not in complete
    assert not any("not finished" in note for note in complete["notes"])


def test_the_command_line_reports_and_runs_nothing(part):
    done = CliRunner().invoke(main, ["reproduce", "uacs", "--scale", "smoke", "--out", str(part), "--finished"])
    assert done.exit_code == 0, done.output
    assert read(part)["unfinished"] == [list(key) for key in MISSING]
    assert not any(
        locate_cell(part, cell).exists() for cell in papers.load("uacs").cells("smoke") if cell.key in MISSING
    )


def test_a_folder_in_which_nothing_is_finished_is_refused_and_not_made(tmp_path):
    out = tmp_path / "new"
    with pytest.raises(ValueError, match=r"no cell of this reproduction is finished in .*new; leave out --finished"):
        papers.reproduce("uacs", scale="smoke", out=out, finished=True)
    assert not out.exists()


def sort_rows(rows):
    return sorted(
        rows, key=lambda row: (row["experiment"], row["method"], row.get("metric", ""), row.get("round") or 0)
    )


def test_cells_of_an_earlier_report_count_where_their_runs_are_missing(whole, part):
    papers.reproduce("uacs", scale="smoke", out=part, finished=True, known=whole)
    there, complete = read(part), read(whole)
    assert "unfinished" not in there
    for name in ("conditions", "claims"):
        assert there[name] == complete[name], name
    for name in ("cells", "results"):
        assert sort_rows(there[name]) == sort_rows(complete[name]), name
    assert there["notes"][0].startswith("Of 2 cells only the results are known")
    assert not (part / "figures" / "accuracy.png").exists(), "it has a line for every method"
    # A report that knows cells from a report alone passes them on.
    again = part.parent / "again"
    papers.reproduce("uacs", scale="smoke", out=again, finished=True, known=part)
    last = read(again)
    for name in ("cells", "results"):
        assert sort_rows(last[name]) == sort_rows(complete[name]), name
    assert last["claims"] == [claim for claim in complete["claims"] if claim["id"] in {c["id"] for c in last["claims"]}]
    assert last["claims"]
    assert last["notes"][0].startswith("This reproduction is not finished: 15 of 15 cells are there; missing studies: ")
    assert last["notes"][1].startswith("Of 15 cells")


def test_cells_of_an_earlier_report_with_other_settings_are_left_out(whole, part, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(whole, other)
    summary = read(other)
    for row in summary["cells"]:
        if (row["experiment"], row["method"]) == MISSING[0]:
            row["settings"] = "00000000"
    (other / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    there = papers.reproduce("uacs", scale="smoke", out=part, finished=True, known=other)
    assert there["unfinished"] == [list(MISSING[0])]
    assert any("settings have changed: Experiment 2, Round-Robin (control)." in note for note in there["notes"])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"finished": False}, "give finished"),
        ({"known": "empty"}, r"empty has no summary\.json"),
        ({"scale": "small"}, "is about uacs at scale smoke, not about uacs at scale small"),
    ],
    ids=str,
)
def test_an_earlier_report_that_cannot_be_used_is_refused(options, said, whole, part):
    given = {"scale": "smoke", "finished": True, "known": whole, "out": part.parent / "new", **options}
    with pytest.raises(ValueError, match=said):
        papers.reproduce("uacs", **given)
    assert not given["out"].exists()


def test_the_folder_of_a_run_is_no_earlier_report(whole):
    run = locate_cell(whole, papers.load("uacs").cells("smoke")[0])
    with pytest.raises(ValueError, match="holds no report of `reproduce`; known must be the folder of an earlier"):
        papers.reproduce("uacs", scale="smoke", finished=True, known=run, out=whole.parent / "new")


def test_conditions_of_both_are_the_smallest_and_the_best():
    first, second = Conditions(300.0, 5.0, 50, 5, 0.4, None), Conditions(500.0, None, 40, 3, 0.6, 0.3)
    assert merge_conditions(first, second) == Conditions(300.0, None, 40, 3, 0.6, 0.3)
    assert merge_conditions(None, first) == first


@pytest.mark.parametrize("folder", ["fedft_eds-small", "gpfl-small", "lefl-small"])
def test_of_any_part_of_the_evidence_only_what_it_carries_is_judged(folder):
    summary, rng = read(COMMITTED / folder), random.Random(7)
    paper, scale, whole = papers.load(summary["paper"]), summary["scale"], read_evidence(COMMITTED / folder)
    complete = {claim.id: claim for claim in paper.claims(scale, whole)}
    tables = {table.title for table in paper.tables(scale, whole)}
    fewer = 0
    for turn in range(25):
        some = [key for key in whole.histories if rng.random() < 0.8]
        some = some if turn % 2 else list(whole.histories)[: rng.randrange(1, len(whole.histories))]
        studies = [name for name in whole.studies if rng.random() < 0.7]
        evidence = Evidence(
            Finished({key: whole.histories[key] for key in some}),
            Finished({name: whole.studies[name] for name in studies}),
        )
        conditions = {experiment: Conditions(1.0, 1.0, 1, 1, 0.0) for experiment, _ in some}
        claims = settle_claims(paper.claims(scale, evidence), paper.regime, conditions, finished=False)
        assert [claim.id for claim in claims] == [name for name in complete if name in {claim.id for claim in claims}]
        for claim in claims:
            assert bool(claim.effect) == bool(complete[claim.id].effect), "none without a comparison"
        fewer += len(claims) < len(complete)
        assert {table.title for table in paper.tables(scale, evidence)} <= tables
        keys = {(one.experiment, one.method) for one in paper.results(scale, evidence) if one.round is None}
        assert keys & set(whole.histories) == set(some)
        paper.figures(scale, evidence)
    assert fewer > 10


def test_a_figure_that_needs_what_was_not_run_is_left_out(tmp_path):
    assert not draw_figure(tmp_path, Figure("time", "", lambda: Finished()["time"]))
    assert not list(tmp_path.iterdir())
    with pytest.raises(KeyError) as raised:
        draw_figure(tmp_path, Figure("time", "", lambda: {}["time"]))
    assert not isinstance(raised.value, NotRun), "a mistake is none of what was not run"


def test_parts_that_need_what_was_not_run_are_left_out_and_mistakes_are_not():
    there = Finished(one=[1], two=[2])
    assert join(lambda: there["two"], lambda: there["three"], lambda: there["one"]) == [2, 1]
    with pytest.raises(KeyError):
        join(lambda: there["two"], lambda: {"one": [1]}["two"])
