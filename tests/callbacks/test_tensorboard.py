"""What TensorBoard reads is what the history says."""

import sys

import numpy as np
import pytest

from fedjax_sel import config


def scalars(place):
    """By sub-run, then metric: a list of (step, value), as TensorBoard reads them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    out = {}
    for inside in sorted((place / "tensorboard").iterdir()):
        read = EventAccumulator(str(inside), size_guidance={"scalars": 0}, purge_orphaned_data=False)
        read.Reload()
        out[inside.name] = {tag: [(e.step, e.value) for e in read.Scalars(tag)] for tag in read.Tags()["scalars"]}
    return out


def expected(history):
    """The same, from the history; TensorBoard keeps single precision."""
    return {
        f"seed-{seed}": {
            name: [(t + 1, float(np.float32(v))) for t, v in enumerate(values[run]) if not np.isnan(v)]
            for name, values in history.metrics.items()
        }
        for run, seed in enumerate(history.seeds)
    }


def test_every_metric_of_every_seed_is_a_scalar_against_rounds(small, tmp_path):
    history = small.run(tmp_path / "run", "tensorboard", seeds=[3, 5], evaluate_every=2)
    read = scalars(tmp_path / "run")
    assert read == expected(history)
    assert [step for step, _ in read["seed-3"]["accuracy"]] == [2, 4, 6]


def test_nothing_is_there_twice_after_an_interruption(small, tmp_path):
    history = small.killed_and_gone_on_with(tmp_path / "run", "tensorboard")
    assert scalars(tmp_path / "run") == expected(history)


def test_a_tensorboard_that_is_open_meanwhile_forgets_the_first_process(small, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with pytest.raises(small.Killed):
        small.run(tmp_path / "run", "tensorboard", killed_after=4)
    watching = EventAccumulator(str(tmp_path / "run" / "tensorboard" / "seed-0"), size_guidance={"scalars": 0})
    watching.Reload()
    assert len(watching.Scalars("accuracy")) == 4
    history = small.run(tmp_path / "run", "tensorboard")
    watching.Reload()
    assert [(e.step, e.value) for e in watching.Scalars("accuracy")] == expected(history)["seed-0"]["accuracy"]


def test_without_the_package_the_extra_is_named_before_anything_runs(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(
        ValueError, match=r"tensorboardX, which is not installed: pip install 'fedjax-sel\[tensorboard\]'"
    ):
        config.build(config.resolve({"data": "iris", "cohort_size": 2, "callbacks": "tensorboard"}))
