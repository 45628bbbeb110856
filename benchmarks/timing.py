"""One statistic for all: a run's chunks."""

from statistics import mean, median


def steady(seconds: list[float], rounds: int) -> float:
    """Seconds a round of a run: the median over its chunks but the first, each the mean of its rounds.

    Ours are measured so, which tells the host nothing of a single round; a median of rounds would leave out what their
    mean holds.

    Args:
      seconds: of the last rounds; some of the first chunk's may be missing.
      rounds: of the run.
    """
    length = fifth(rounds)
    chunks = rounds // length - 1
    last = seconds[-chunks * length :]
    return median(mean(last[i * length : (i + 1) * length]) for i in range(chunks))


def fifth(rounds: int) -> int:
    """Rounds of a chunk: a fifth of the run's."""
    return max(1, rounds // 5)
