"""The differential privacy of an experiment."""

from __future__ import annotations

import numpy as np

from fedjax_sel.aggregation.dp_fedavg import DPFedAvg
from fedjax_sel.client_selection.uniform import Uniform
from fedjax_sel.correction.none import NoCorrection
from fedjax_sel.data.federated import FederatedData
from fedjax_sel.devices.availability import Always, Bernoulli
from fedjax_sel.engine.experiment import Experiment
from fedjax_sel.metrics.privacy import epsilon
from fedjax_sel.protocols import overrides

__all__ = ["epsilon_of"]


def epsilon_of(
    experiment: Experiment,
    data: FederatedData,
    delta: float,
    *,
    public_moments: bool = False,
    public_start: bool = False,
) -> float:
    """Returns `ε` of client-level (ε, δ)-differential privacy for the release of the models of all rounds.

    What an experiment measures (accuracy, losses, ledgers) is not covered, as it is not released. Nor is the end of a
    seed in which no member returns a finite update.

    Args:
      experiment: with `DPFedAvg`. Either its clients are drawn uniformly, or all that can be reached take part, each
        with the probability of `Bernoulli` availability.
      data: data of its clients.
      delta: `δ`.
      public_moments: whether the constants by which the task normalises examples, one a feature or channel, are public,
        rather than those of the clients' examples, as `Task.on` computes them.
      public_start: whether the pretrained variables from which the task starts were trained without the clients' data.

    Raises:
      ValueError: the guarantee does not hold: something else depends on the clients' data, or clients are drawn in
        another way.
    """
    if not isinstance(data, FederatedData):
        raise ValueError(f"data is a {type(data).__name__}; it must be the data of one seed, federation.draw(seed)")
    aggregation, selector, availability = experiment.aggregation, experiment.client_selection, experiment.availability
    choice = experiment.data_selection
    m, n = experiment.count_cohort(data.num_clients), data.num_clients
    task = experiment.task
    normalised = task.frozen.normalised or any(np.ndim(a) for a in (task.shift, task.scale))
    problems = {  # of classes derived from these, nothing is known
        f"aggregation is {type(aggregation).__name__}, not DPFedAvg": type(aggregation) is not DPFedAvg,
        f"client_selection is {type(selector).__name__}, not Uniform": type(selector) is not Uniform,
        f"correction is {type(experiment.correction).__name__}, which is not known to send the update alone": (
            type(experiment.correction) is not NoCorrection
        ),
        "the model has batch statistics or other such variables, which are averaged without a bound": bool(
            task.split(task.shapes(data.like))[1]
        ),
        "there is a deadline, which depends on how many examples a client has": bool(
            np.isfinite(experiment.deadline.seconds)
        ),
        f"data_selection is {type(choice).__name__}, by which clients tell the server of their examples": any(
            overrides(choice, name) for name in ("prepare", "merge", "choose_deadline")
        ),
        "the task normalises by moments that may be of the clients' examples; use Task.on(..., normalise=False) or "
        "'unit', or constants of other data and public_moments=True": normalised and not public_moments,
        "the task starts from pretrained variables, which may tell of the clients' examples; if they were trained on "
        "other data, say so: public_start=True": bool(task.frozen.start) and not public_start,
        f"volatility is {type(experiment.volatility).__name__}, not Always": type(experiment.volatility) is not Always,
    }
    for problem, found in problems.items():
        if found:
            raise ValueError(f"no ε: {problem}")
    assert isinstance(aggregation, DPFedAvg)
    z = float(aggregation.noise_multiplier)
    if type(availability) is Always:
        return epsilon(z, experiment.rounds, share=(m, n), delta=delta, sampling="fixed")
    if type(availability) is Bernoulli and np.ndim(availability.p) == 0 and m == n:
        return epsilon(z, experiment.rounds, share=float(availability.p), delta=delta)
    raise ValueError(
        f"no ε: availability is {type(availability).__name__} and cohort_size is {m} of N = {n}; it must be Always, or "
        "Bernoulli with one p and cohort_size=N"
    )
