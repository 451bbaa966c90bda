"""Tasks for each training step, drawn ahead in blocks."""

from dataclasses import dataclass, field

from varscale.core.episode import Episode
from varscale.core.processes import ALONE, Processes
from varscale.data.dataset import Split
from varscale.data.sampler import EpisodeRows, EpisodeSampler


@dataclass(eq=False)
class Feed:
    """Tasks of each training step, divided equally between processes."""

    split: Split
    sampler: EpisodeSampler  # draws tasks from `split.labels`
    tasks_per_step: int = 1  # over all processes
    processes: Processes = ALONE
    block: int = 64  # steps to draw ahead
    _drawn: tuple[int, EpisodeRows] | None = field(default=None, init=False)

    def __call__(self, step: int) -> tuple[int, Episode]:
        """Number of this process's first task at a step, and its tasks."""
        number, place = divmod(step, self.block)
        if self._drawn is None or self._drawn[0] != number:
            tasks = self.block * self.tasks_per_step
            self._drawn = number, self.sampler.batch(number * tasks, tasks)
        share = self.processes.share(self.tasks_per_step)
        first = place * self.tasks_per_step + share.start
        episode = self.split.episode(self._drawn[1][first : first + len(share)])
        return step * self.tasks_per_step + share.start, episode
