"""A process that only takes part in the fits of another one, the main process: no test, no curve, no record."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator

from omegaconf import DictConfig, OmegaConf

from fmm import team
from fmm.errors import FmmError
from fmm.interruption import SIGNALS

_GRACE_SECONDS = 10.0  # to leave a fit that the main process has left


def main() -> None:
    """Take part in one fit, in a process that the main process has started for it."""
    quiet()
    sys.exit(0 if Joined(os.environ[team.FIT_STORE]).run() else 1)


def follow(command: team.CommandStore) -> int:
    """Take part in the fits of a command that a launcher has started in several processes. Returns its exit status."""
    quiet()
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # for good: the main process prints
    try:
        while isinstance(met := command.next(), str):
            Joined(met).run()
        return met
    except RuntimeError:  # of the store
        print("error: the first process of this command is gone", file=sys.stderr)
        return 1


def quiet() -> None:
    """Leave warnings and logs to the main process, which has the same."""
    warnings.simplefilter("ignore")
    logging.getLogger().addHandler(logging.NullHandler())  # else Python prints them


class Joined:
    """One fit of the main process, in another process."""

    def __init__(self, address: str) -> None:
        from torch.distributed import TCPStore

        host, port = address.rsplit(":", 1)
        self.address = address
        self.store = TCPStore(host, int(port), is_master=False, wait_for_workers=False, timeout=team.PATIENCE)
        self._over = threading.Event()

    def run(self) -> bool:
        """Fit what the main process fits. Returns whether that went well; what went wrong is told to it."""
        from fmm.tasks import train

        with self._watched(), _undisturbed():
            try:
                cfg = OmegaConf.create(self.store.get("settings").decode())
                assert isinstance(cfg, DictConfig)
                train.take_part(cfg, self.join)
            except BaseException as error:
                self._tell(error)
                return False
        self.store.add("left", 1)
        return True

    @contextlib.contextmanager
    def join(self, cfg: DictConfig, identity: str) -> Iterator[None]:
        """As `team.lead` for the main process: say what is about to be fitted, and fit it with the others."""
        here = team.place()
        with team.as_before():
            helpers = team.come_together(self.address, here, *team.counts(cfg))
            self.store.set(f"identity{self.store.add('announced', 1)}", identity)
            self.store.add("ready", 1)
            try:
                yield
                for helper in helpers:
                    helper.wait()
            finally:
                for helper in helpers:
                    helper.kill()
                    helper.wait()

    def _tell(self, error: BaseException) -> None:
        with contextlib.suppress(RuntimeError):  # of the store: the main process is gone
            if self.store.check(["end"]):  # it has left the fit, which is what went wrong here
                return
            if isinstance(error, FmmError):
                text = str(error)
            else:
                text = f"{error!r} in a process of the fit\n{''.join(traceback.format_exception(error))}"
            self.store.set("failed", f"{type(error).__name__} {text}")

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        thread = threading.Thread(target=self._watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _watch(self) -> None:
        """End this process where the main one is gone or has left the fit, and this one hangs in waiting for it."""
        try:
            while not self.store.check(["end"]):
                if self._over.wait(1.0):
                    return
            if not self._over.wait(_GRACE_SECONDS):
                os._exit(1)
        except RuntimeError:
            os._exit(1)


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Leave it to the main process what signals mean to a fit.

    Handlers that do nothing, as Lightning would put its own in the place of SIG_IGN.
    """
    before = {number: signal.signal(number, lambda *_: None) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
