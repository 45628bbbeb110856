"""A folder gives back what was saved in it, and is left alone when it is something else."""

import errno
import json
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from fedjax_sel import config as configuration
from fedjax_sel.cli import main
from fedjax_sel.engine.disk import DiskFull
from fedjax_sel.engine.history import History
from fedjax_sel.report.environment import find_settings
from fedjax_sel.runs import files, layout
from fedjax_sel.runs.layout import FolderError
from fedjax_sel.runs.lock import FolderLock, lock_folder

CONFIG = configuration.resolve(
    {
        "data": "iris",
        "partition": {"clients": 10},
        "model": "logistic",
        "cohort_size": 2,
        "rounds": 4,
        "seeds": [3, 9],
    }
)
COSTS = ("bytes_down", "bytes_up", "client_flops", "selection_bytes_down", "selection_bytes_up", "selection_flops")


def a_history():
    rng = np.random.default_rng(0)
    accuracy, loss = rng.random((2, 2, 4)).astype(np.float32)
    accuracy[:, [0, 2]] = loss[:, [0, 2]] = np.nan
    loss[1, 3] = np.inf
    costs = {name: rng.integers(0, 2**40, (2, 4)).astype(np.float64) for name in COSTS}
    selections = rng.integers(-1, 10, (2, 4, 2)).astype(np.int32)
    about = {"device": "none", "parameters": 15, "seconds": 1 / 3}
    return History((3, 9), {"accuracy": accuracy, "loss": loss, **costs}, selections, 10, about)


@pytest.fixture
def saved(tmp_path):
    layout.save(tmp_path / "run", a_history(), CONFIG, figures=False)
    return tmp_path / "run"


def content(place: Path):
    return {path: path.read_bytes() for path in sorted(place.rglob("*")) if path.is_file()}


def test_a_run_is_read_back_exactly(saved):
    back, config = layout.read(saved)
    history = a_history()
    assert config == CONFIG
    assert (back.seeds, back.num_clients, back.about) == (history.seeds, history.num_clients, history.about)
    assert list(back.metrics) == list(history.metrics)
    for name, values in history.metrics.items():
        np.testing.assert_array_equal(back[name], values)
        assert back[name].dtype == values.dtype
    np.testing.assert_array_equal(back.selections, history.selections)
    assert back.selections.dtype == history.selections.dtype


def test_a_metric_without_any_value_survives(tmp_path):
    history = a_history()
    history.metrics["nothing"] = np.full((2, 4), np.nan, np.float32)
    layout.save(tmp_path / "run", history, CONFIG, figures=False)
    assert np.isnan(layout.read(tmp_path / "run")[0]["nothing"]).all()


def test_metrics_are_kept_under_a_name_that_is_not_utf_8(tmp_path):
    """As where the locale lacks the letters of a folder's name."""
    history, place = a_history(), tmp_path / "l\udce4ufe.parquet"
    files.write_metrics(place, history)
    found = files.read_metrics(place, history.seeds, history.rounds)
    np.testing.assert_array_equal(found["accuracy"], history["accuracy"])
    table = history.to_pandas()
    files.write_parquet(place, table)
    pd.testing.assert_frame_equal(files.read_parquet(place), table)


def test_the_folder_holds_what_is_promised(tmp_path):
    layout.save(tmp_path / "run", a_history(), CONFIG)
    names = {str(path.relative_to(tmp_path / "run")) for path in content(tmp_path / "run")}
    assert names == {
        *("config.yaml", "metrics.parquet", "selections.npz", "summary.json", "report.md", "report.html"),
        *("figures/accuracy.png", "figures/accuracy_by_bytes.png", "figures/accuracy_by_flops.png"),
    }
    assert "(figures/accuracy.png)" in (tmp_path / "run" / "report.md").read_text()


def test_figures_of_fewer_rounds_do_not_stay(tmp_path, monkeypatch):
    """Those of a run with devices whose clients were evaluated, which has all figures; other files stay."""
    place, history = tmp_path / "run", a_history()
    more = ("seconds", "joules", "client_accuracy_mean", "client_accuracy_worst_decile")
    metrics = dict.fromkeys(more, history["accuracy"])
    clients = {"accuracy": np.full((2, 1, history.num_clients), 0.5)}
    layout.save(
        place,
        replace(history, metrics={**history.metrics, **metrics}, client_metrics=clients, client_rounds=(4,)),
        CONFIG,
    )
    assert len(list((place / "figures").iterdir())) == 6
    (place / "figures" / "mine.png").touch()
    monkeypatch.setattr(layout, "check", lambda *_, **__: "extended")
    layout.create(place, CONFIG)
    names = {str(path.relative_to(place)) for path in content(place)}
    kept = {"config.yaml", "environments.json", "metrics.parquet", "selections.npz", "clients.parquet"}
    assert names == kept | {"figures/mine.png"}


def test_the_summary_is_strict_json_with_environment_and_results(saved):
    summary = json.loads((saved / "summary.json").read_text(), parse_constant=lambda word: pytest.fail(word))
    history = a_history()
    final = summary["results"]["final_accuracy"]
    assert final["mean"] == pytest.approx(history["accuracy"][:, -1].mean())
    assert final["std"] == pytest.approx(history["accuracy"][:, -1].std(ddof=1))
    assert summary["results"]["final_loss"]["per_seed"][1] is None
    both = sum(history[name].sum(1) for name in COSTS if "bytes" in name)
    assert summary["results"]["bytes"]["per_seed"] == both.tolist()
    assert summary["seconds"] == 1 / 3
    expected = {"fedjax_sel", "jax", "jaxlib", "flax", "optax", "numpy", "python", "platform", "device", "commit"}
    expected |= {"dirty"}
    assert set(summary["environment"]) - {"XLA_FLAGS"} == expected  # the tests have some of their own


def test_json_has_a_line_for_each_array_of_numbers_and_gives_back_what_was_written(tmp_path):
    rows = {"rows": [[1, 0.1 + 0.2, None, True], [5e-324, -2]], "names": ["a", 1], "empty": [[]]}
    texts = {"[\n 1,\n 2]": "[\n 1,\n  2]", "spaces": "[ 1,   2]", "escaped": "[\\n 1]", "quoted": '"[\n 1]"'}
    files.write_json(tmp_path / "some.json", {**rows, **texts})
    assert files.read_json(tmp_path / "some.json") == {**rows, **texts}
    written = (tmp_path / "some.json").read_text(encoding="utf-8")
    assert "  [1, 0.30000000000000004, null, true],\n  [5e-324, -2]\n ]" in written
    assert len(written.splitlines()) == 17


def test_settings_that_can_change_the_last_digits_are_recorded(monkeypatch):
    flags = "--xla_cpu_enable_fast_math=true"
    own = "--xla_force_host_platform_device_count=2 --xla_cpu_collective_call_terminate_timeout_seconds=9"
    monkeypatch.setenv("XLA_FLAGS", f"{own} {flags}")
    with jax.default_matmul_precision("highest"):
        assert find_settings() == {"jax_default_matmul_precision": "highest", "XLA_FLAGS": flags}
    monkeypatch.setenv("XLA_FLAGS", own)
    assert find_settings() == {}


def test_the_summary_names_every_environment_that_took_part(tmp_path, monkeypatch):
    place, now = tmp_path / "run", {"jax": "0.9", "commit": "a"}
    monkeypatch.setattr(layout, "environment", lambda: dict(now))
    layout.create(place, CONFIG)
    layout.create(place, CONFIG)
    assert layout.read_environments(place) == [now]
    now["jax"] = "0.10"
    layout.create(place, CONFIG)
    layout.save(place, a_history(), CONFIG, figures=False)
    two = [{"jax": "0.9", "commit": "a"}, {"jax": "0.10", "commit": "a"}]
    summary = json.loads((place / "summary.json").read_text())
    assert (summary["earlier_environments"], summary["environment"]) == (two[:1], two[1])
    assert layout.read_environments(place) == two
    assert layout.read_commit(place) == "a"
    assert not (place / layout.ENVIRONMENTS).exists()
    now["commit"] = "b"
    monkeypatch.setattr(layout, "check", lambda *_, **__: "extended")
    layout.create(place, CONFIG)
    monkeypatch.setattr(layout, "check", lambda *_, **__: "interrupted")
    layout.save(place, a_history(), CONFIG, figures=False)
    three = [*two, {"jax": "0.10", "commit": "b"}]
    assert layout.read_environments(place) == three
    assert layout.read_commit(place) == "a then b"
    monkeypatch.setattr(layout, "check", lambda *_, **__: "extended")
    layout.create(place, CONFIG)
    assert layout.read_environments(place) == three, "extended where it was finished"


def test_a_folder_is_new_then_interrupted_then_finished(tmp_path):
    place = tmp_path / "run"
    assert layout.state(place) == "new"
    assert layout.create(place, CONFIG) == "new"
    assert layout.state(place) == "interrupted"
    assert layout.check(place, CONFIG) == "interrupted"
    with pytest.raises(FolderError, match="not finished"):
        layout.read(place)
    layout.save(place, a_history(), CONFIG, figures=False)
    assert layout.check(place, CONFIG) == "finished"


def test_what_a_killed_process_left_half_written_does_not_count(tmp_path):
    (tmp_path / ".config.yaml.abc.part").write_text("da")
    assert layout.state(tmp_path) == "new"


def test_a_folder_of_something_else_is_refused_and_not_touched(tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    before = content(tmp_path)
    for use in (layout.check, layout.create):
        with pytest.raises(FolderError, match=r"has no config.yaml, but other files .thesis.tex"):
            use(tmp_path, CONFIG)
    with pytest.raises(FolderError, match="not a run's folder"):
        layout.save(tmp_path, a_history(), CONFIG)
    assert content(tmp_path) == before


def test_another_configuration_is_refused_with_the_keys_that_differ(saved):
    before = content(saved)
    other = configuration.resolve({**CONFIG, "cohort_size": 3, "client_selection": "entropy"})
    with pytest.raises(FolderError, match="cohort_size: 2 there, 3 here") as error:
        layout.save(saved, a_history(), other)
    assert "client_selection.name: uniform there, entropy here" in str(error.value)
    assert "client_selection.epsilon: absent there" in str(error.value)
    assert content(saved) == before


def test_a_finished_run_is_not_written_again(saved):
    before = content(saved)
    with pytest.raises(FolderError, match="finished run"):
        layout.save(saved, a_history(), CONFIG)
    assert content(saved) == before


@pytest.mark.parametrize("name", ["config.yaml", "metrics.parquet", "selections.npz", "summary.json"])
@pytest.mark.parametrize("damage", ["half", "empty"])
def test_a_damaged_file_is_named(saved, name, damage):
    whole = (saved / name).read_bytes()
    half = whole.rindex(b"{") + 1 if name == "config.yaml" else len(whole) // 2  # whole lines alone would still be YAML
    (saved / name).write_bytes(whole[:half] if damage == "half" else b"")
    with pytest.raises(FolderError, match=f"{name} cannot be read"):
        layout.read(saved)


@pytest.mark.parametrize("name", ["metrics.parquet", "selections.npz"])
def test_a_missing_file_is_named(saved, name):
    (saved / name).unlink()
    with pytest.raises(FolderError, match=f"{name} cannot be read .it is missing"):
        layout.read(saved)


def test_files_of_different_runs_are_noticed(saved, tmp_path):
    history = a_history()
    shorter = History((3, 9), {k: v[:, :2] for k, v in history.metrics.items()}, history.selections[:, :2], 10, {})
    layout.save(tmp_path / "other", shorter, CONFIG, figures=False)
    (saved / "metrics.parquet").write_bytes((tmp_path / "other" / "metrics.parquet").read_bytes())
    with pytest.raises(FolderError, match=r"metrics.parquet.*2 rounds"):
        layout.read(saved)


def test_no_run_at_all_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such folder"):
        layout.read(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="the folder is empty"):
        layout.read(tmp_path)


def test_what_cannot_be_written_is_refused_before_anything_runs(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderError, match="is a file"):
        layout.check(tmp_path / "file", CONFIG)
    with pytest.raises(FolderError, match=r"cannot be written: .*file is a file"):
        layout.check(tmp_path / "file" / "run", CONFIG)
    monkeypatch.setattr(layout.os, "access", lambda *_: False)
    with pytest.raises(FolderError, match="read-only"):
        layout.check(tmp_path / "run", CONFIG)


def test_a_file_whose_writing_failed_is_as_it_was(tmp_path):
    files.write_text(tmp_path / "a", "old")

    def fails():
        with files.write_atomic(tmp_path / "a") as new:
            new.write_text("ne")
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError):
        fails()
    assert content(tmp_path) == {tmp_path / "a": b"old"}


def test_one_process_at_a_time_has_a_folder(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(FolderError, match=r"run cannot be written \(Not a directory\); give another folder"):
        lock_folder(tmp_path / "file" / "run").__enter__()
    with lock_folder(tmp_path / "run"), pytest.raises(FolderError, match="run is used by another process"):
        FolderLock(tmp_path / "run", CONFIG).__enter__()
    with FolderLock(tmp_path / "run", CONFIG) as hold:
        hold.on_train_begin(a_history())
        with pytest.raises(FolderError, match="run is used by another process"), lock_folder(tmp_path / "run"):
            pass
    with lock_folder(tmp_path / "run"):
        pass


def test_of_two_processes_that_begin_a_new_folder_one_is_refused(tmp_path):
    with FolderLock(tmp_path / "run", CONFIG) as first, FolderLock(tmp_path / "run", CONFIG) as second:
        first.on_train_begin(a_history())
        with pytest.raises(FolderError, match="run is used by another process"):
            second.on_train_begin(a_history())


def test_only_what_was_left_half_written_here_is_removed(tmp_path):
    (tmp_path / "figures").mkdir()
    left = [tmp_path / ".metrics.parquet.x1.part", tmp_path / "figures" / ".accuracy.png.x2.part"]
    others = [tmp_path / "film.part", tmp_path / "figures" / "film.part"]
    for path in left + others:
        path.write_text("")
    left.append(tmp_path / ".model-seed-0.orbax.part")
    left[-1].mkdir()  # Orbax writes folders
    with lock_folder(tmp_path):
        assert not any(path.exists() for path in left)
        assert all(path.exists() for path in others)


def test_what_was_left_in_cells_is_removed_where_no_process_has_locked_them(tmp_path):
    paths = [tmp_path / place for place in ("studies", "cells/done", "runs/other/figures", "cells/busy")]
    for path in paths:
        path.mkdir(parents=True)
        (path.parent if path.name == "figures" else path).joinpath(".lock").touch()
        (path / ".metrics.parquet.x1.part").write_text("")
    with lock_folder(tmp_path / "cells" / "busy"):  # which removes its own, so it is put there again
        (paths[-1] / ".metrics.parquet.x1.part").write_text("")
        with lock_folder(tmp_path):
            assert [len(list(path.glob(".*.part"))) for path in paths] == [0, 0, 0, 1]


def test_a_full_disk_is_told_and_the_file_is_as_it_was(tmp_path, monkeypatch):
    files.write_text(tmp_path / "a", "old")

    def full(file):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(DiskFull, match=f"no room on the disk of {tmp_path}; what was kept before is still there"):
        files.write_text(tmp_path / "a", "new")
    assert content(tmp_path) == {tmp_path / "a": b"old"}


def test_a_folder_of_one_client_is_not_that_of_all_clients(tmp_path):
    small = (
        "run",
        "iris",
        "model=logistic",
        "partition.clients=3",
        "rounds=1",
        "--seeds",
        "1",
        "--out",
        tmp_path / "out",
    )

    def call(*more):
        return CliRunner().invoke(main, [str(argument) for argument in (*small, *more)])

    assert call("cohort_size=1").exit_code == 0
    assert "another configuration (cohort_size: 1 there, 1.0 here)" in " ".join(call("cohort_size=1.0").stderr.split())


def test_a_run_that_another_process_has_finished_meanwhile_is_not_run_again(tmp_path):
    with FolderLock(tmp_path / "run", CONFIG) as late:
        with FolderLock(tmp_path / "run", CONFIG) as first:
            first.on_train_begin(a_history())
            layout.save(tmp_path / "run", a_history(), CONFIG, figures=False)
        with pytest.raises(FolderError, match=r"another process has finished the run in .*; the same command shows it"):
            late.on_train_begin(a_history())


def test_a_file_that_cannot_be_written_is_called_by_its_own_name(tmp_path):
    for path in (tmp_path / "none" / "a.png", tmp_path / ("x" * 300)):
        with pytest.raises(OSError, match=r"No such file|too long") as raised, files.write_atomic(path):
            pass
        assert raised.value.filename == str(path)
