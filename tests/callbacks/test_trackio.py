"""Trackio is given every round of every seed once."""

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from fedjax_sel.callbacks.trackio import Trackio


@pytest.fixture
def trackio(monkeypatch):
    """A module in Trackio's place, which keeps what it is given: its own needs a server."""
    begun, logged = [], []

    def init(**given):
        begun.append(given)
        name = given["name"]
        return SimpleNamespace(
            log=lambda found, step: logged.append((name, step, found)), finish=lambda: logged.append((name, "finished"))
        )

    module = ModuleType("trackio")
    module.__spec__ = SimpleNamespace(origin="trackio.py")
    module.init, module.begun, module.logged = init, begun, logged
    monkeypatch.setitem(sys.modules, "trackio", module)
    return module


def test_every_round_of_every_seed_is_logged_once_also_after_a_kill(small, tmp_path, trackio):
    history = small.killed_and_gone_on_with(tmp_path / "run", {"trackio": {"project": "mine"}}, seeds=[3, 5])
    first = [given for given in trackio.begun if given["config"]["seed"] == 3]
    assert [(given["project"], given["group"], given["resume"]) for given in first] == [("mine", "run", "allow")] * 2
    assert len({given["name"] for given in first}) == 1
    end = (tmp_path / "run" / "trackio.id").read_text()
    for i, seed in enumerate((3, 5)):
        name = f"run-uniform-seed-{seed}-{end}"
        found = [(one[1], one[2]) for one in trackio.logged if one[0] == name and one[1] != "finished"]
        assert [step for step, _ in found] == [1, 2, 3, 4, 5, 6]
        assert [values["round"] for _, values in found] == [1, 2, 3, 4, 5, 6]
        np.testing.assert_array_equal([values["accuracy"] for _, values in found], history["accuracy"][i])
    assert trackio.logged[-1][1] == "finished"


def test_in_python_every_run_that_begins_is_another_one(small, tmp_path, monkeypatch, trackio):
    monkeypatch.chdir(tmp_path)
    for rounds in (2, 4):
        small.simulate(rounds, callbacks=[Trackio()])
    steps: dict = {}
    for name, step, *_ in trackio.logged:
        steps.setdefault(name, []).append(step)
    assert list(steps.values()) == [[1, 2, "finished"], [1, 2, 3, 4, "finished"]]


def test_another_run_in_a_folder_of_the_same_name_is_another_one(small, tmp_path, trackio):
    for place in ("one", "two"):
        (tmp_path / place).mkdir()
        small.run(tmp_path / place / "run", "trackio", seeds=1)
    assert len({given["name"] for given in trackio.begun}) == 2
