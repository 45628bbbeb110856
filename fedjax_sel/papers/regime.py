"""The smallest run that can judge a paper's sentences, and the conditions of a run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Conditions:
    """Conditions of the runs of one experiment: where runs differ, the smallest value (for accuracy, the best).

    Attributes:
      examples_per_client: training examples, averaged over clients.
      local_epochs: a client's passes over its examples per round.
      rounds: of the run.
      seeds: of the run.
      above_chance: best accuracy over the rounds, averaged over seeds, of the best method, as a fraction of the way
        from chance to 1; centralised training, of one client, does not count.
      pretrained_accuracy: of the model that the runs began with, on its own pretraining data; None: they began with a
        fresh model.
    """

    examples_per_client: float | None
    local_epochs: float | None
    rounds: int
    seeds: int
    above_chance: float | None
    pretrained_accuracy: float | None = None


def merge_conditions(first: Conditions | None, second: Conditions) -> Conditions:
    """Returns the conditions of the runs of both; the first may be missing.

    >>> merge_conditions(Conditions(300.0, 5.0, 50, 5, 0.4), Conditions(300.0, 1.0, 50, 3, 0.6)).above_chance
    0.6
    """
    if first is None:
        return second

    def choose(name: str, best: Callable[..., float], lost: bool = True) -> Any:
        both = [vars(one)[name] for one in (first, second)]
        sure = [value for value in both if value is not None]
        return best(sure) if sure and (len(sure) == 2 or not lost) else None

    return Conditions(
        examples_per_client=choose("examples_per_client", min),
        local_epochs=choose("local_epochs", min),
        rounds=min(first.rounds, second.rounds),
        seeds=min(first.seeds, second.seeds),
        above_chance=choose("above_chance", max),
        pretrained_accuracy=choose("pretrained_accuracy", min, lost=False),  # None: began with a fresh model
    )


@dataclass(frozen=True)
class FairRegime:
    """The minimum that an experiment must meet for a paper's sentences to be judged by it.

    Attributes:
      examples_per_client, local_epochs, rounds, seeds, above_chance: minimum values, as in `Conditions`.
      pretrained_accuracy: minimum accuracy of the model that runs begin with; None: the paper pretrains none.
      reason: where these numbers come from.
    """

    examples_per_client: float
    local_epochs: float
    rounds: int
    seeds: int
    above_chance: float
    reason: str
    pretrained_accuracy: float | None = None

    def __post_init__(self) -> None:
        """Raises `ValueError` for values that cannot be requirements."""
        for name, (least, most) in BOUNDS.items():
            value = vars(self)[name]
            if value is not None and not least <= value <= most:
                raise ValueError(f"a fair regime's {name} is from {least} to {most}, not {value}")

    def find_shortfalls(self, had: Conditions) -> dict[str, tuple[float | None, float]]:
        """Returns every requirement that was missed, with the actual and the required value.

        A value that a run did not record counts as missed, with None. The exception is the accuracy of a pretrained
        model, which is None if runs began with a fresh one.
        """
        out: dict[str, tuple[float | None, float]] = {}
        for name in NAMES:
            asked, there = vars(self)[name], vars(had)[name]
            if asked is None or (name == "pretrained_accuracy" and there is None):
                continue
            if there is None or not there >= asked:
                out[name] = there, asked
        return out

    def describe(self) -> str:
        """Returns the requirements in one sentence."""
        given = {name: value for name in NAMES if (value := vars(self)[name])}
        asked = [f"{format_requirement(name, value)} {NAMES[name]}" for name, value in given.items()]
        return f"{'; '.join(asked)} ({self.reason})"


NAMES = {
    "examples_per_client": "training examples per client",
    "local_epochs": "local epochs",
    "rounds": "rounds",
    "seeds": "seeds",
    "above_chance": "of the way from chance to accuracy 1",
    "pretrained_accuracy": "accuracy of the pretrained model on its own data",
}
"""Requirements in words."""

BOUNDS = {
    "examples_per_client": (1, math.inf),
    "local_epochs": (0, math.inf),
    "rounds": (1, math.inf),
    "seeds": (2, math.inf),
    "above_chance": (0, 1),
    "pretrained_accuracy": (0, 1),
}


def describe_shortfalls(regime: FairRegime, conditions: Mapping[str, Conditions]) -> str:
    """Returns what these experiments missed and by how much, the worst for each requirement; "" if nothing.

    Args:
      regime: of the paper.
      conditions: by experiment; all experiments have to meet the regime.
    """
    worst: dict[str, tuple[float | None, float, str]] = {}
    for experiment, had in conditions.items():
        for name, (there, asked) in regime.find_shortfalls(had).items():
            known = worst.get(name)
            if known is None or (known[0] is not None and (there is None or there < known[0])):
                worst[name] = there, asked, experiment
    return "; ".join(
        f"{format_requirement(name, there, least)} of at least {least} {NAMES[name]} ({experiment})"
        for name, (there, asked, experiment) in worst.items()
        for least in [format_requirement(name, asked)]
    )


def format_requirement(name: str, value: float | None, unlike: str = "") -> str:
    """Returns a requirement's value as readable text, with more digits where it would read as `unlike`.

    >>> format_requirement("rounds", 50), format_requirement("above_chance", 0.3), format_requirement("rounds", None)
    ('50', '30 %', 'an unknown number')
    >>> format_requirement("above_chance", 0.2996, unlike="30 %")
    '29.96 %'
    """
    if value is None:
        return "an unknown number"
    percent = name in ("above_chance", "pretrained_accuracy")
    texts = (f"{100 * value:.{d}g} %" if percent else f"{value:.{d}g}" for d in range(2 if percent else 4, 18))
    return next(text for text in texts if text != unlike)


def describe_conditions(conditions: Mapping[str, Conditions]) -> dict[str, dict[str, Any]]:
    """Returns the conditions as `summary.json` lists them."""
    return {experiment: asdict(had) for experiment, had in conditions.items()}
