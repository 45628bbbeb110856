"""Loss and metrics in a configuration."""

import numpy as np
import pytest

from fedjax_sel.config import build, resolve
from fedjax_sel.config.marks import drop_marks
from fedjax_sel.config.resolve import override
from fedjax_sel.engine.experiment import stack_experiments
from fedjax_sel.task import F1, Accuracy, Focal, SquaredError
from fedjax_sel.task.losses import OwnLoss

IRIS = {"data": "iris", "partition": {"clients": 5}, "cohort_size": 2, "rounds": 2, "seeds": 1}


def test_a_configuration_without_a_task_has_the_loss_and_metrics_of_its_targets():
    task = build(resolve(IRIS)).experiment.task
    assert task.metrics == {"accuracy": Accuracy()}
    task = build(resolve({**IRIS, "data": "diabetes"})).experiment.task
    assert task.loss == SquaredError()
    assert list(task.metrics) == ["absolute_error"]


def test_losses_and_metrics_are_named_and_their_numbers_swept():
    given = override(IRIS, ["task.loss=focal", "task.loss.gamma=1", "task.metrics=[accuracy, f1]"])
    one = build(resolve(given)).experiment
    assert one.task.loss == Focal(1.0)
    assert one.task.metrics == {"accuracy": Accuracy(), "f1": F1()}
    other = build(resolve(override(given, ["task.loss.gamma=3", "evaluate_clients_every=1"]))).experiment
    assert other.evaluate_clients_every == 1
    _, differs = stack_experiments([one, one.replace(task=one.task.replace(loss=Focal(3.0)))])
    assert sum(differs) == 1  # floats: one program


def test_a_loss_and_a_metric_of_the_users_own_are_taken_from_a_file(tmp_path, monkeypatch):
    (tmp_path / "mine_of_task.py").write_text(
        "import jax.numpy as jnp\nfrom fedjax_sel.task import Loss\n\n\n"
        "def brier(outputs, targets):\n    return jnp.zeros(len(targets))\n\n\n"
        "class Scaled(Loss):\n    by: float = 2.0\n\n    def __call__(self, outputs, targets):\n"
        "        return self.by * outputs[:, 0]\n"
    )
    monkeypatch.chdir(tmp_path)
    given = {**IRIS, "task": {"loss": "mine_of_task.py:brier", "metrics": {"b": "mine_of_task.py:brier"}}}
    config = resolve(given)
    task = build(config).experiment.task
    assert isinstance(task.loss, OwnLoss)
    assert task.loss.function.__name__ == "brier"
    assert list(task.metrics) == ["b"]
    assert resolve(config.to_dict()) == config
    assert "code" not in str(drop_marks(config))
    with pytest.raises(ValueError, match="the file has changed"):
        resolve({**given, "task": {"loss": {"name": "mine_of_task.py:brier", "code": "00000000"}}})
    scaled = resolve({**given, "task": {"loss": {"name": "mine_of_task.py:Scaled", "by": 3}}})
    np.testing.assert_allclose(build(scaled).experiment.task.loss.by, 3.0)


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("task.loss=fokal", "unknown loss 'fokal'; did you mean 'focal'"),
        ("task.loss.gamma=1", "task.loss has gamma, but no name that says which one it is"),
        ("task.metrics=[acuracy]", "unknown metric 'acuracy'; did you mean 'accuracy'"),
        ("task=focal", "it must be a mapping"),
        ("task.metric=[f1]", "unknown key of task: 'metric'; did you mean 'metrics'"),
        ("evaluate_clients_every=0", "must be a whole number, at least 1"),
        ("evaluate_clients_every=often", "whole number or null"),
    ],
)
def test_what_is_no_task_is_refused(item, message):
    with pytest.raises(ValueError, match=message):
        build(resolve(override(IRIS, [item])))
