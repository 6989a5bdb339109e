"""The sweeper of `python run.py -m`. It stands here because Hydra takes plugins from `hydra_plugins` only."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.utils import JobReturn
from omegaconf import OmegaConf

from fmm import grid, overrides, places, sweep
from fmm.cli import report
from fmm.conf import Conf
from fmm.errors import FmmError, of_disk

log = logging.getLogger(__name__)


class Sweeper(BasicSweeper):
    """A grid in which a job that fails, or that cannot even be composed, does not stop the others."""

    def sweep(self, arguments: list[str]) -> list[JobReturn]:
        """Run every job, print which failed and why, and exit with 1 if any did."""
        try:
            return self._sweep(arguments)
        except OSError as error:  # Hydra would show its traceback
            assert self.config is not None
            if (sentence := of_disk(error, self.config.hydra.sweep.dir)) is None:
                raise
            raise SystemExit(report(sentence)) from error

    def _sweep(self, arguments: list[str]) -> list[JobReturn]:
        assert self.config is not None and self.launcher is not None and self.hydra_context is not None
        parsed = OverridesParser.create(self.hydra_context.config_loader).parse_overrides(
            [*self._parse_config(), *arguments]
        )
        directory = Path(self.config.hydra.sweep.dir)
        directory.mkdir(parents=True, exist_ok=True)
        OmegaConf.save(self.config, directory / "multirun.yaml")
        jobs = grid.jobs(parsed)
        try:
            folders = places.directories(self.config, self.hydra_context.config_loader, jobs)
        except FmmError as error:
            raise SystemExit(report(error)) from error
        results: list[JobReturn] = []
        for start, batch in self._batches(folders, jobs):
            try:
                results += self.launcher.launch(batch, initial_job_idx=start)
            except Exception as error:  # a parallel launcher lost a process; the jobs' marks say which did not finish
                log.error("the launcher failed: %s", error)
            except KeyboardInterrupt:
                sweep.summarise(directory, jobs, folders)
                raise
        if sweep.summarise(directory, jobs, folders):
            raise SystemExit(1)
        return results

    def _batches(self, folders: Sequence[Path], jobs: Sequence[list[str]]) -> Iterator[tuple[int, list[list[str]]]]:
        """Yield (number of the first job, jobs) for runs of neighbouring jobs that can be composed."""
        good = [number for number, job in enumerate(jobs) if self._composes(folders[number], job)]
        size = self.max_batch_size or len(jobs)
        assert self.config is not None
        if not places.by_number(self.config):
            jobs = [places.pinned(job, folder) for job, folder in zip(jobs, folders, strict=True)]
        start = 0
        while start < len(good):
            end = start + 1
            while end < len(good) and end - start < size and good[end] == good[end - 1] + 1:
                end += 1
            yield good[start], [jobs[number] for number in good[start:end]]
            start = end

    def _composes(self, directory: Path, job: Sequence[str]) -> bool:
        assert self.config is not None
        try:
            overrides.check_job(Conf.running(self.config), tuple(job))
        except FmmError:
            with contextlib.suppress(FmmError), sweep.job_directory(directory, job, OmegaConf.create()):
                raise
            return False
        return True
