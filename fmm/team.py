"""The processes of one command: the first does and decides everything, the others only take part in its fits.

Where a fit is on several processes, the main process starts the others itself, for this fit alone, and tells them
what it fits; nothing of the command line is run again. Where a launcher (torchrun, srun) has started all processes,
those but the first wait until they are told of a fit, or of the end of the command.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta

from omegaconf import DictConfig, OmegaConf

from fmm.errors import FmmError, first_line

HOST = "127.0.0.1"
PATIENCE = timedelta(minutes=30)  # for others to come: as long as Lightning waits
LEAVING_SECONDS = 60.0
HANGING_SECONDS = 20.0  # that the main process has to notice a helper's end by itself
POLL_SECONDS = 0.1
FIT_STORE = "FMM_FIT_STORE"  # tells a helper where to ask, as host:port
_ENVIRONMENT = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "NODE_RANK", "LOCAL_RANK", "OMP_NUM_THREADS")
_START = "import json, os, sys; sys.path[:] = json.loads(os.environ['FMM_PATH']); from fmm import helper; helper.main()"


@dataclass(frozen=True)
class Place:
    """What a launcher says of this process.

    main: it is the first one
    launched: others were started beside it
    starts: it starts the further processes of its machine itself
    others: how many others were started, 0 where nobody says
    """

    main: bool = True
    launched: bool = False
    starts: bool = True
    others: int = 0


def place(environment: Mapping[str, str] = os.environ) -> Place:
    """This process's place among those that torchrun, Slurm's srun or a person started; alone where nobody did.

    >>> place({"RANK": "1", "WORLD_SIZE": "2"}).main, place({"SLURM_PROCID": "0", "SLURM_NTASKS": "1"}).launched
    (False, False)
    """

    def number(name: str, default: int = 0) -> int:
        text = environment.get(name, "")
        return int(text) if text.isdecimal() else default

    if FIT_STORE in environment:
        return Place(main=False, launched=True, starts=False)
    if "RANK" in environment and number("WORLD_SIZE", 1) > 1:  # torchrun
        return Place(number("RANK") == 0, True, False, number("WORLD_SIZE") - 1)
    tasks = number("SLURM_STEP_NUM_TASKS", number("SLURM_NTASKS", 1))
    if "SLURM_PROCID" in environment and tasks > 1 and environment.get("SLURM_JOB_NAME") not in ("bash", "interactive"):
        return Place(number("SLURM_PROCID") == 0, True, False, tasks - 1)
    node = number("NODE_RANK", number("GROUP_RANK"))
    main = node == 0 and number("LOCAL_RANK") == 0
    given = "LOCAL_RANK" in environment
    if "MASTER_PORT" in environment and (given or "NODE_RANK" in environment):  # each process, or one a machine
        return Place(main, True, not given, max(0, number("WORLD_SIZE", 1) - 1) if given else 0)
    if not main:
        raise FmmError(
            f"LOCAL_RANK={number('LOCAL_RANK')} NODE_RANK={node} say that this is not the first of several processes, "
            "but MASTER_ADDR and MASTER_PORT do not say where the first one is; set them, or unset the ranks"
        )
    return Place()


def starts_processes() -> bool:
    """Whether the processes of this machine were started here, not by a launcher."""
    return place().starts or FIT_STORE in os.environ


class CommandStore:
    """What the first of launched processes tells the others, beside the fits: where each is met, and the end."""

    current: CommandStore | None = None  # of the command that this process runs

    def __init__(self, here: Place) -> None:
        from torch.distributed import PrefixStore, TCPStore

        host, port = _first_process()
        served = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"  # torchrun's own store is there
        try:
            store = TCPStore(
                host,
                port,
                is_master=here.main and not served,
                wait_for_workers=False,
                timeout=PATIENCE,
                multi_tenant=True,
            )
        except RuntimeError as error:
            action = "listen at" if here.main else "reach the first process at"
            raise FmmError(
                f"cannot {action} {host}:{port}, where launched processes meet ({first_line(error)}); give another "
                "MASTER_PORT, the same to all of them"
            ) from error
        self.store = PrefixStore(f"fmm{os.environ.get('TORCHELASTIC_RESTART_COUNT', '')}", store)
        self.others, self.fits = here.others, 0
        if not here.main:
            self.store.add("came", 1)

    def announce(self, address: str) -> None:
        """Call the others to the next fit."""
        self.store.set(f"fit{self.fits}", address)
        self.fits += 1

    def next(self) -> str | int:
        """Wait for the address of the next fit, or the exit status of the command."""
        while True:
            if self.store.check([f"fit{self.fits}"]):
                self.fits += 1
                return self.store.get(f"fit{self.fits - 1}").decode()
            if self.store.check(["end"]):
                status = int(self.store.get("end"))
                self.store.add("left", 1)
                return status
            time.sleep(POLL_SECONDS)

    def end(self, status: int) -> None:
        """Tell the others the exit status, and keep the store until they have heard."""
        self.store.set("end", str(status))
        wait_until(lambda: self.store.add("left", 0) >= max(self.others, self.store.add("came", 0)), LEAVING_SECONDS)


def _first_process() -> tuple[str, int]:
    """Host and port at which the launcher has the first process listen."""
    if "SLURM_PROCID" in os.environ and "RANK" not in os.environ:
        from pytorch_lightning.plugins.environments import SLURMEnvironment

        try:
            environment = SLURMEnvironment(auto_requeue=False)
        except RuntimeError as error:
            raise FmmError(f"Lightning refuses these options of Slurm: {first_line(error)}") from error
        return environment.main_address, environment.main_port
    host, port = os.environ.get("MASTER_ADDR", HOST), os.environ.get("MASTER_PORT", "")
    if not port.isdecimal():
        raise FmmError(f"MASTER_PORT={port} is no port, so that launched processes cannot meet; set it for all of them")
    return host, int(port)


def command(here: Place, run: Callable[[], int]) -> int:
    """Run a command in the first of launched processes, and its fits alone in the others. Returns its exit status."""
    CommandStore.current = CommandStore(here)
    if not here.main:
        from fmm import helper

        return helper.follow(CommandStore.current)
    status = 1
    try:
        status = run()
    finally:
        CommandStore.current.end(status)
        CommandStore.current = None
    return status


def wait_until(reached: Callable[[], bool], seconds: float) -> bool:
    """Whether something came true within so many seconds."""
    end = time.monotonic() + seconds
    while not reached():
        if time.monotonic() > end:
            return False
        time.sleep(POLL_SECONDS)
    return True


@contextlib.contextmanager
def lead(cfg: DictConfig, identity: str) -> Iterator[None]:
    """Have the other processes take part in the fit inside the block; they are gone from it afterwards.

    `identity` says which run is fitted and from where on: the others must come to the same. Raises FmmError where they
    do not, where they fail, and where not as many processes were launched as train.
    """
    count, per_machine = counts(cfg)
    here = place()
    _check_count(here, count, per_machine)
    with as_before():
        if count == 1:
            yield
        else:
            with Fit(cfg, here, count, per_machine).led(identity):
                yield


def counts(cfg: DictConfig) -> tuple[int, int]:
    """How many processes train, in all and on each machine."""
    from fmm.trainer import processes

    settings = OmegaConf.to_container(cfg.trainer, resolve=True)
    assert isinstance(settings, dict)
    count = processes({str(name): value for name, value in settings.items()})
    return count, count // int(settings.get("num_nodes") or 1)


@contextlib.contextmanager
def as_before() -> Iterator[None]:
    """Undo what a fit on several processes changes in this one: ranks, its process group, the number of threads."""
    import torch

    before = {name: os.environ.get(name) for name in _ENVIRONMENT}
    threads = torch.get_num_threads()
    try:
        yield
    finally:
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
        torch.set_num_threads(threads)
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _check_count(here: Place, count: int, per_machine: int) -> None:
    if count == 1:
        if here.launched:
            print("this training is on one process; the other processes that were started wait", flush=True)
        return
    if count > per_machine and not here.launched:
        raise FmmError(
            f"trainer.num_nodes={count // per_machine} needs a process on every machine: start the command by srun or "
            "torchrun, or on each machine with its NODE_RANK, and MASTER_ADDR and MASTER_PORT of the first"
        )
    if here.launched and CommandStore.current is None:
        raise FmmError("several processes were launched, but not by the command line; start run.py in all of them")
    if here.others and here.others + 1 != count:
        raise FmmError(
            f"{here.others + 1} processes were started, but trainer.devices and trainer.num_nodes ask for {count}; "
            f"start {count}, or change trainer.devices"
        )


class Fit:
    """One fit on several processes, in the main process: a place to meet, and the helpers started here."""

    def __init__(self, cfg: DictConfig, here: Place, count: int, per_machine: int) -> None:
        from torch.distributed import TCPStore

        host = os.environ.get("MASTER_ADDR", HOST) if here.launched else HOST
        # On a free port of the system's choice; Lightning's process group meets there as well.
        self.store = TCPStore(host, 0, is_master=True, wait_for_workers=False, timeout=PATIENCE, multi_tenant=True)
        self.store.set("settings", OmegaConf.to_yaml(cfg, resolve=True))
        self.address = f"{host}:{self.store.port}"
        self.here, self.count, self.per_machine = here, count, per_machine
        self.helpers: list[subprocess.Popen[bytes]] = []
        self._over = threading.Event()

    @contextlib.contextmanager
    def led(self, identity: str) -> Iterator[None]:
        """Bring the processes together, watch them during the block, and see them off."""
        try:
            if self.here.launched:
                assert CommandStore.current is not None
                CommandStore.current.announce(self.address)
            self.helpers = come_together(self.address, self.here, self.count, self.per_machine)
            self._gather(identity)
            threading.Thread(target=self._watch, daemon=True).start()
            yield
            self._over.set()
            self._see_off()
        except Exception as error:
            self._over.set()
            if isinstance(error, FmmError) or (problem := self._problem(patience=2.0)) is None:
                raise
            raise problem from error
        finally:
            self._over.set()
            self.store.set("end", "")  # before the helpers are done only where this process has failed
            for helper in self.helpers:
                helper.kill()
                helper.wait()

    def _gather(self, identity: str) -> None:
        """Wait until all are ready to fit, and compare what they are about to fit."""
        others = self.count - 1

        def all_here() -> bool:
            if (problem := self._problem()) is not None:
                raise problem
            return self.store.add("ready", 0) >= others

        if not wait_until(all_here, PATIENCE.total_seconds()):
            raise FmmError(f"only {self.store.add('ready', 0)} of {others} other processes came to this fit; start all")
        for number in range(1, others + 1):
            other = self.store.get(f"identity{number}").decode()
            if other != identity:
                raise FmmError(
                    f"the processes of this fit disagree on what it is: {identity} in the first, {other} in another; "
                    "give all of them the same files and settings"
                )

    def _problem(self, patience: float = 0.0) -> Exception | None:
        """What has gone wrong in another process, if anything; asked for up to `patience` seconds."""
        wait_until(lambda: self.store.check(["failed"]) or any(map(_failed, self.helpers)), patience)
        if self.store.check(["failed"]):
            kind, _, text = self.store.get("failed").decode().partition(" ")
            return FmmError(text) if kind == FmmError.__name__ else RuntimeError(text)
        for helper in filter(_failed, self.helpers):
            return FmmError(
                f"a process of this fit {_how_ended(helper.returncode)} (pid {helper.pid}); where memory ran out lower "
                "training.batch_size or trainer.devices; the same command continues"
            )
        return None

    def _watch(self) -> None:
        """End this process where another one is gone and it hangs in waiting for it, as it does with GPUs."""
        while not self._over.wait(1.0):
            problem = self._problem()
            if problem is not None and not self._over.wait(HANGING_SECONDS):
                print(f"error: {problem}", file=sys.stderr, flush=True)
                for helper in self.helpers:
                    helper.kill()
                os._exit(1)

    def _see_off(self) -> None:
        wait_until(lambda: self.store.add("left", 0) >= self.count - 1, LEAVING_SECONDS)
        for helper in self.helpers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                helper.wait(timeout=LEAVING_SECONDS)


def come_together(address: str, here: Place, count: int, per_machine: int) -> list[subprocess.Popen[bytes]]:
    """Tell Lightning what no launcher has told it, and start the processes of this machine that nobody has started.

    They are in process groups of their own, so that Ctrl-C reaches the main process alone, which then ends them.
    """
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = address.rsplit(":", 1)
    if not here.starts:
        if "RANK" in os.environ and "LOCAL_RANK" not in os.environ:
            node, local = divmod(int(os.environ["RANK"]), per_machine)
            os.environ |= {"LOCAL_RANK": str(local), "NODE_RANK": str(node)}
        return []
    os.environ |= {"LOCAL_RANK": "0", "WORLD_SIZE": str(count)}
    os.environ.setdefault("NODE_RANK", "0")
    environment = os.environ | {FIT_STORE: address, "FMM_PATH": json.dumps(sys.path)}
    environment.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")  # what goes wrong is told by the main process
    return [
        subprocess.Popen(
            [sys.executable, "-c", _START],
            env=environment | {"LOCAL_RANK": str(rank)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            process_group=0,
        )
        for rank in range(1, per_machine)
    ]


def _failed(helper: subprocess.Popen[bytes]) -> bool:
    return helper.poll() not in (None, 0)


def _how_ended(status: int) -> str:
    if status >= 0:
        return f"ended with status {status}"
    return f"was ended by {signal.Signals(-status).name}"
