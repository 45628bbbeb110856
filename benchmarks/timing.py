"""The statistic of a run's time that ours and all peers share."""

from statistics import mean, median


def steady(seconds: list[float], rounds: int) -> float:
    """Returns the seconds per round of a run: the median over all chunks but the first, each the mean of its rounds.

    Our own runs are measured this way, since the host does not see single rounds; a median over rounds would leave out
    time that their mean includes.

    Args:
      seconds: seconds of the last rounds; some of the first chunk's may be missing.
      rounds: number of rounds of the run.
    """
    length = fifth(rounds)
    chunks = rounds // length - 1
    last = seconds[-chunks * length :]
    return median(mean(last[i * length : (i + 1) * length]) for i in range(chunks))


def fifth(rounds: int) -> int:
    """Returns the rounds of a chunk: a fifth of the run's."""
    return max(1, rounds // 5)
