"""Runs that are killed, stopped, or out of room, in processes of their own, end as if nothing had been."""

import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from fedjax_sel.engine import checkpoint
from fedjax_sel.engine.checkpoint import Checkpoints
from fedjax_sel.runs import layout
from tests.killing import Program, fill, hang, interrupt, kill, no_large_files, terminate, wait

ROUNDS, CHUNK = 36, 2
RUN = ("run", "digits", "data.validation=0.1", "partition.clients=20", "model.hidden=[16]", "cohort_size=3")
RUN += ("client_selection=gpfl", "correction=scaffold", f"rounds={ROUNDS}", f"chunk={CHUNK}", "--seeds", "2", "--out")
KILLS = 10


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A folder of a run that nothing happened to, and the seconds from when it was announced to its end."""
    here = tmp_path_factory.mktemp("whole")
    program = Program([*RUN, "run"], here)
    program.says("device: ")
    began = time.monotonic()
    assert program.ended() == 0, program.said
    return here / "run", time.monotonic() - began


def same(place, whole):
    """Whether two folders hold the same run: files byte for byte, the state of the last round bit for bit."""
    for name in ("metrics.parquet", "selections.npz", "config.yaml"):
        assert (place / name).read_bytes() == (whole[0] / name).read_bytes(), name
    one, other = (checkpoint.read(at / "checkpoints" / f"round-{ROUNDS:06d}") for at in (place, whole[0]))
    assert one.keys() == other.keys()
    for name in one.keys() - {"about.seconds"}:
        assert (one[name].dtype, one[name].shape) == (other[name].dtype, other[name].shape)
        assert one[name].tobytes() == other[name].tobytes(), name
    left = [path.name for path in place.rglob("*") if path.suffix == ".part" or "tmp" in path.name]
    assert not left
    assert layout.state(place) == "finished"


def resumed_at(program):
    """After which round it went on."""
    assert "damaged" not in program.said
    (*_, after) = ("continuing after round 0\n" + program.said).split("continuing after round ")
    return int(after.split()[0])


def goes_on_to_the_same_end(here, whole):
    program = Program([*RUN, "run"], here)
    assert program.ended() == 0, program.said
    same(here / "run", whole)
    return resumed_at(program)


def test_a_run_killed_at_any_moment_ends_as_if_it_had_not_been(whole, tmp_path):
    rng, kills, runs = np.random.default_rng(2024), 0, 0
    while kills < KILLS:
        runs += 1
        here, done = tmp_path / f"{runs}", False
        here.mkdir()
        while not done:
            program, moment = Program([*RUN, "run"], here), rng.uniform(0, whole[1])
            if kills < KILLS and program.says_or_ends("device: "):  # it ends at once if it was killed when finished
                program.process.join(moment)
                program.process.kill()
            status = program.ended()
            done = status == 0
            kills += not done
            print(f"run {runs}, resumed at {resumed_at(program):2}, ", end="")
            print("finished" if done else f"killed {moment:.2f} s after its start", flush=True)
            assert status in (0, -signal.SIGKILL), program.said
        same(here / "run", whole)


# In the order in which a run comes by; a process goes on from where the one before it was killed.
PLACES = {
    "before the configuration is in place": ({"at": ("os.rename", "config.yaml")}, 0),
    "before anything of a checkpoint is written": ({"at": ("os.mkdir", "round-000002.orbax")}, 0),
    "in the first chunk": ({"chunk": (1, kill)}, 0),
    "while a checkpoint is written": ({"at": ("open", "round-000006.orbax-checkpoint-tmp/_METADATA")}, 0),
    "before a checkpoint is complete": ({"at": ("os.rename", "round-000012")}, 4),
    "in a chunk, with a state to go on from": ({"chunk": (4, kill)}, 10),
    "before an old checkpoint is removed": ({"at": ("shutil.rmtree", "round-000018")}, 14),
    "while an old checkpoint is removed": ({"at": ("os.rmdir", "round-000024")}, 22),
    "while the last checkpoint is written": ({"at": ("os.rename", f"round-{ROUNDS:06d}")}, 28),
    "before the metrics are written": ({"before_metrics": kill}, ROUNDS - 2),
    "before the metrics are in place": ({"at": ("os.rename", "metrics.parquet")}, ROUNDS),
    "between the metrics and the selections": ({"at": ("tempfile.mkstemp", "selections.npz")}, ROUNDS),
    "while figures are drawn": ({"at": ("os.rename", "accuracy_by_bytes.png")}, ROUNDS),
    "before the summary is in place": ({"at": ("os.rename", "summary.json")}, ROUNDS),
}


def test_a_run_killed_at_every_place_that_writes_ends_as_if_it_had_not_been(whole, tmp_path):
    for place, (how, after) in PLACES.items():
        program = Program([*RUN, "run"], tmp_path, **how)
        assert program.ended() == -signal.SIGKILL, (place, program.said)
        assert resumed_at(program) == after, place
        print(f"resumed at {after:2}, killed {place}", flush=True)
        assert layout.state(tmp_path / "run") in ("new", "interrupted")
    assert goes_on_to_the_same_end(tmp_path, whole) == ROUNDS


@pytest.mark.parametrize(("ask", "status"), [(terminate, 143), (interrupt, 130)])
def test_a_signal_in_a_chunk_finishes_the_chunk_and_keeps_it(whole, tmp_path, ask, status):
    program = Program([*RUN, "run"], tmp_path, chunk=(4, ask), pause=3600.0)
    assert program.ended() == status, program.said
    assert "stopping after this chunk of rounds, which is kept; once more to stop at once" in program.said
    assert f"stopped after 8 of {ROUNDS} rounds; kept in run: the same command goes on from there" in program.said
    assert goes_on_to_the_same_end(tmp_path, whole) == 8


def test_a_second_signal_stops_at_once_though_a_chunk_never_ends(whole, tmp_path):
    program = Program([*RUN, "run"], tmp_path, chunk=(4, hang))
    program.says("computing for hours")
    program.send(signal.SIGTERM)
    program.says("once more to stop at once")
    assert program.process.is_alive()
    program.send(signal.SIGTERM)
    assert program.ended() == 143
    assert "stopped at once" in program.said
    assert "Traceback" not in program.said
    assert goes_on_to_the_same_end(tmp_path, whole) == 6


def content(place):
    return {path: path.read_bytes() for path in sorted(place.rglob("*")) if path.is_file()}


def test_a_second_process_on_a_folder_is_refused_and_the_first_finishes(whole, tmp_path):
    first = Program([*RUN, "run"], tmp_path, chunk=(4, wait))
    first.says("waiting")
    while not (tmp_path / "run" / "checkpoints" / "round-000006").is_dir():  # what it still writes
        assert first.process.is_alive(), first.said
        time.sleep(0.02)
    before, second = content(tmp_path / "run"), Program([*RUN, "run"], tmp_path)
    assert second.ended() == 2, second.said
    assert second.said == "error: run is used by another process; wait for it, or give another folder\n"
    assert content(tmp_path / "run") == before
    (tmp_path / "go").touch()
    assert first.ended() == 0, first.said
    same(tmp_path / "run", whole)


def test_a_paper_is_reproduced_in_a_folder_by_one_process_and_by_the_next_when_that_was_killed(tmp_path):
    paper = ("reproduce", "uacs", "--scale", "smoke", "--seeds", "1", "--out", "paper")
    first = Program(paper, tmp_path, chunk=(1, wait))
    first.says("waiting")
    second = Program(paper, tmp_path)
    assert second.ended() == 2, second.said
    assert second.said == "error: paper is used by another process; wait for it, or give another folder\n"
    first.send(signal.SIGKILL)
    assert first.ended() == -signal.SIGKILL
    third = Program(paper, tmp_path, chunk=(1, terminate))
    assert third.ended() == 143, third.said
    assert "kept in paper: the same command goes on from there" in third.said


def refused_for_lack_of_room(program, place, kept):
    assert program.ended() == 2, program.said
    (line,) = [line for line in program.said.splitlines() if line.startswith("error: ")]
    assert line == f"error: no room on the disk of {place}; {kept}"
    assert "Traceback" not in program.said
    assert program.said.endswith(line + "\n")


def test_a_disk_that_is_full_when_a_checkpoint_is_written_costs_the_rounds_after_the_one_before(whole, tmp_path):
    program = Program([*RUN, "run"], tmp_path, chunk=(5, no_large_files))
    kept = "the state after round 8 is kept, and the same command goes on from there"
    refused_for_lack_of_room(program, tmp_path / "run" / "checkpoints", kept)
    assert Checkpoints(tmp_path / "run" / "checkpoints").rounds() == [6, 8]
    assert goes_on_to_the_same_end(tmp_path, whole) == 8


def test_a_disk_that_is_full_when_results_are_written_costs_no_round(whole, tmp_path):
    program = Program([*RUN, "run"], tmp_path, before_metrics=no_large_files)
    refused_for_lack_of_room(program, "run", "what was kept before is still there, and the same command goes on")
    assert not (tmp_path / "run" / "metrics.parquet").exists()
    assert goes_on_to_the_same_end(tmp_path, whole) == ROUNDS


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 4 MB in `disk`."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = shutil.which("mount") and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", place], capture_output=True, check=False
    )
    if not mounted or mounted.returncode:
        pytest.skip("only root can mount a small disk")
    yield place
    subprocess.run(["umount", place], check=True)


@pytest.mark.parametrize("how", [{"chunk": (5, fill)}, {"before_metrics": fill}], ids=["checkpoint", "metrics"])
def test_a_real_full_disk_ends_a_run_in_one_line_and_is_gone_on_from_when_there_is_room(whole, small_disk, how):
    run = [*RUN, "disk/run"]
    program = Program(run, small_disk.parent, **how)
    assert program.ended() == 2, program.said
    assert "error: no room on the disk of " in program.said.splitlines()[-1]
    assert "Traceback" not in program.said
    (small_disk / "ballast").unlink()
    program = Program(run, small_disk.parent)
    assert program.ended() == 0, program.said
    assert resumed_at(program) == (8 if "chunk" in how else ROUNDS)
    same(small_disk / "run", whole)


def test_the_command_itself_is_killed_stopped_and_goes_on(whole, tmp_path):
    def started():
        command = [sys.executable, "-m", "fedjax_sel.cli", *RUN, "run"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        return subprocess.Popen(command, cwd=tmp_path, env=environment, text=True, stdout=subprocess.PIPE)

    for number, status in ((signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, 143)):
        process = started()
        assert process.stdout is not None
        assert process.stdout.readline().startswith("device: ")
        process.send_signal(number)
        process.communicate(timeout=300)
        assert process.returncode == status
    last = started()
    last.communicate(timeout=300)
    assert last.returncode == 0
    same(tmp_path / "run", whole)
