"""Small runs with callbacks of a configuration, uninterrupted or killed and gone on with."""

import pytest

from fedjax_sel import config
from fedjax_sel.engine.checkpoint import Checkpoints

IRIS = {
    "data": "iris",
    "partition": {"clients": 10},
    "model": "logistic",
    "cohort_size": 4,
    "rounds": 6,
    "seeds": 2,
    "chunk": 1,
}


class Killed(BaseException):
    """The end of a process, after the callbacks were told of a chunk and before its checkpoint; no error to catch."""


class Small:
    """Runs on iris in a folder."""

    Killed = Killed

    def run(self, place, callbacks, *, killed_after=None, **changes):
        """The history of one run; from the newest checkpoint, where there is one."""
        place.mkdir(exist_ok=True)
        built = config.build(config.resolve({**IRIS, "callbacks": callbacks, **changes}))
        told, seen = built.callbacks(place), []

        def kill(history):
            seen.append(history)
            if history.rounds == killed_after:
                raise Killed

        points = Checkpoints(place / "checkpoints", pause=0)
        try:
            return built.simulate(callbacks=[*told, kill], checkpoints=points)
        except Killed:
            points.finish()
            for one in told:  # what a process leaves open is closed at its end
                getattr(one, "on_train_end", lambda history: None)(seen[-1])
            raise

    def simulate(self, rounds, callbacks):
        """The history of a run as Python makes it, without a folder."""
        built = config.build(config.resolve({**IRIS, "seeds": 1, "rounds": rounds}))
        return built.simulate(callbacks=callbacks)

    def killed_and_gone_on_with(self, place, callbacks, after=4, **changes):
        """The history of a run whose first process ended after round `after`, one round ahead of its checkpoint."""
        with pytest.raises(Killed):
            self.run(place, callbacks, killed_after=after, **changes)
        history = self.run(place, callbacks, **changes)
        assert history.about["resumed_at"] == after - 1
        return history


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    return Small()
