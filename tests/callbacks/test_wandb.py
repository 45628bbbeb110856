"""What W&B keeps offline is what the history says."""

import json
import struct
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest

from fedjax_sel import config
from fedjax_sel.callbacks.wandb import WandB

BLOCK, HEAD = 32768, 7
WHOLE, LAST = 1, 4


def records(file):
    """The records of a `.wandb` file, which is a log of LevelDB after seven bytes."""
    from wandb.proto.wandb_internal_pb2 import Record

    raw, at, parts = file.read_bytes(), HEAD, b""
    while at + HEAD <= len(raw):
        if BLOCK - at % BLOCK < HEAD:
            at += BLOCK - at % BLOCK
            continue
        _, length, kind = struct.unpack("<IHB", raw[at : at + HEAD])
        if at + HEAD + length > len(raw):
            return
        parts += raw[at + HEAD : at + HEAD + length]
        at += HEAD + length
        if kind in (WHOLE, LAST):
            yield Record.FromString(parts)
            parts = b""


def finished(file):
    """The records of a file once it is complete: W&B's own process writes it, and may do so after `finish`."""
    end = time.monotonic() + 60
    while not (found := list(records(file))) or found[-1].WhichOneof("record_type") != "exit":
        assert time.monotonic() < end, f"{file} is never finished"
        time.sleep(0.05)
    return found


def kept(place):
    """By the name of the run: its group, project, configuration, and what was logged, a dictionary a step."""
    out = {}
    for file in sorted((place / "wandb").glob("offline-run-*/*.wandb")):
        found, logged = finished(file), []
        for record in found:
            if record.WhichOneof("record_type") == "history":
                items = {(i.key or ".".join(i.nested_key)): json.loads(i.value_json) for i in record.history.item}
                logged.append({name: value for name, value in items.items() if not name.startswith("_")})
        (run,) = [record.run for record in found if record.WhichOneof("record_type") == "run"]
        given = {i.key: json.loads(i.value_json) for i in run.config.update if i.key != "_wandb"}
        assert run.display_name not in out
        out[run.display_name] = run.run_group, run.project, given, logged
    return out


def expected(history):
    """What is logged of every run of a history."""
    return [
        [
            {"round": t + 1} | {name: v[run, t] for name, v in history.metrics.items() if not np.isnan(v[run, t])}
            for t in range(history.rounds)
        ]
        for run in range(len(history.seeds))
    ]


def test_a_run_a_seed_with_the_configuration_and_every_metric(small, tmp_path):
    history = small.run(tmp_path / "run", {"wandb": {"project": "mine"}}, seeds=[3, 5], evaluate_every=2)
    read = kept(tmp_path / "run")
    assert list(read) == ["run seed 3", "run seed 5"]
    for seed, (group, project, given, logged), values in zip((3, 5), read.values(), expected(history), strict=True):
        assert (group, project) == ("run", "mine")
        assert given["seed"] == seed
        assert given["client_selection"] == {"name": "uniform"}
        assert given["callbacks"] == {"wandb": {"project": "mine", "group": None, "mode": "offline"}}
        assert logged == values


def test_after_an_interruption_every_round_is_there_once_in_the_same_runs(small, tmp_path):
    with pytest.raises(small.Killed):
        small.run(tmp_path / "run", {"wandb": {"group": "ours"}}, killed_after=4)
    names = {path.name[-10:] for path in (tmp_path / "run" / "wandb").glob("offline-run-*")}
    history = small.run(tmp_path / "run", {"wandb": {"group": "ours"}})
    assert history.about["resumed_at"] == 3
    assert {path.name[-10:] for path in (tmp_path / "run" / "wandb").glob("offline-run-*")} == names
    read = kept(tmp_path / "run")
    assert [group for group, *_ in read.values()] == ["ours", "ours"]
    assert [logged for *_, logged in read.values()] == expected(history)


def test_online_the_rounds_that_are_there_are_not_sent_again(monkeypatch, small, tmp_path):
    import wandb

    begun, sent = [], []

    class Run:
        starting_step = 3  # two rounds are there

        def define_metric(self, *_, **__):
            pass

        def log(self, found, step):
            sent.append((step, found["round"]))

        def finish(self):
            sent.append("finished")

    monkeypatch.setattr(wandb, "init", lambda **given: begun.append(given) or Run())
    small.run(tmp_path / "run", {"wandb": {"mode": "online"}})
    assert sent == [(t, t) for t in (3, 4, 5, 6) for _ in "ab"] + ["finished"] * 2
    small.run(tmp_path / "run", {"wandb": {"mode": "online"}})
    assert [(given["mode"], given["resume"]) for given in begun] == [("online", "allow")] * 4
    assert [given["id"] for given in begun[:2]] == [given["id"] for given in begun[2:]]


def test_a_run_after_an_interrupted_one_is_logged_whole_and_to_its_own_runs(monkeypatch, small, tmp_path):
    """Nobody tells a callback of an interruption, so the next run finds what the interrupted one left."""
    import wandb

    logged = []

    class Run:
        starting_step = 0

        def __init__(self, seed):
            self.seed = seed

        def define_metric(self, *_, **__):
            pass

        def log(self, found, step):
            logged.append((self.seed, step))

        def finish(self):
            pass

    def begin(*, config, **_):
        begun.append(config["seed"])
        if begun == failing:
            raise wandb.Error("no space")
        return Run(len(begun))

    def interrupt(history):
        raise small.Killed

    monkeypatch.setattr(wandb, "init", begin)
    callback, begun, failing = WandB(folder=tmp_path), [], []
    with pytest.raises(small.Killed):
        small.simulate(3, [callback, interrupt])
    logged.clear()
    small.simulate(3, [callback])
    assert begun == [0, 0]
    assert logged == [(2, 1), (2, 2), (2, 3)]
    begun, failing = [], [0, 1]
    history = SimpleNamespace(seeds=(0, 1), rounds=0, about={})
    with pytest.raises(ValueError, match="no space"):
        callback.on_train_begin(history)
    callback.on_train_begin(history)
    assert [run.seed for run in callback._runs] == [3, 4]


def test_disabled_does_nothing(small, tmp_path):
    small.run(tmp_path / "run", {"wandb": {"mode": "disabled"}})
    assert not (tmp_path / "run" / "wandb").exists()


def test_what_wandb_refuses_is_one_line(small, tmp_path):
    with pytest.raises(ValueError, match=r"callbacks\.wandb: .*project name"):
        small.run(tmp_path / "run", {"wandb": {"project": "a/b"}})


def test_without_the_package_the_extra_is_named_before_anything_runs(monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ValueError, match=r"wandb, which is not installed: pip install 'fedjax-sel\[wandb\]'"):
        config.build(config.resolve({"data": "iris", "cohort_size": 2, "callbacks": "wandb"}))


def test_an_unknown_mode_is_refused():
    with pytest.raises(ValueError, match="unknown mode of wandb: 'ofline'; did you mean 'offline'"):
        WandB(mode="ofline")  # type: ignore[arg-type]
