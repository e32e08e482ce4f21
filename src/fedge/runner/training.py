"""Take a run from where its record stands to its end, be that the last round, a wish to stop, or divergence."""

from __future__ import annotations

import contextlib
import logging
import time
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from jax.experimental import multihost_utils

from fedge.core.contract import State
from fedge.engine.mesh import here
from fedge.errors import DivergenceError, RunError, StoppedError
from fedge.runner import checkpoint, device, identity, record
from fedge.runner.listener import Audience, ListenerError
from fedge.runner.loop import Alone, Stretch, is_finite, stretches
from fedge.runner.prepare import Preparation
from fedge.runner.record import DIVERGED, FAILED, FINISHED, STOPPED, Progress, Record, Silent
from fedge.runner.result import Result
from fedge.runner.rows import Row
from fedge.runner.setting import setting_of, waiting_of
from fedge.runner.signals import Leave, StopRequest

log = logging.getLogger(__name__)
FEW = 10_000  # clients whose links are written down with each checkpoint, in about ten milliseconds


def train(
    job: Preparation, kept: Record | Silent, folder: Path, listener: Audience, stop: StopRequest | None, began: float
) -> Result:
    """Go on from where the record stands until the end, and write down how it ended."""
    try:
        with stop.heard() if stop is not None else contextlib.nullcontext():
            return Training(job, kept, folder, listener, stop, began).train()
    except (KeyboardInterrupt, Leave, StoppedError):
        kept.mark(STOPPED)
        raise
    except DivergenceError:
        raise
    except ListenerError as problem:
        kept.mark(FAILED)
        raise ListenerError(f"{problem}; what was trained is kept: fedge run --resume {folder}") from problem.__cause__
    except Exception:
        kept.mark(FAILED)
        raise


class RoundGivenUpError(Exception):
    """A round that takes long was left in the middle, because of a wish to stop."""


class Training:
    """This takes a run from where its record stands to its end."""

    def __init__(
        self, job: Preparation, kept: Record | Silent, folder: Path, listener: Audience, stop: StopRequest | None,
        began: float,
    ) -> None:  # fmt: skip
        self._job, self._made, self._config, self._kept = job, job.made, job.made.config, kept
        self._folder, self._listener, self._stop, self._began = folder, listener, stop, began
        self._seconds, self._compiled = 0.0, job.engine.compile_seconds
        self._first, self._trainer, self._wished = 0, Alone(job.engine), False

    def train(self) -> Result:
        state, done, history = self._restore()
        config = self._config.model_dump()
        stored = self._kept.stored_result() if config == self._kept.config else None
        if stored is not None and (stored.get("diverged") is True or not self._more(done, history)):
            return self._repeat_result(stored, state, done, history)
        self._kept.go_on(config, history, setting_of(self._made))
        if done:
            total = self._job.costs.rounds
            log.info("continuing after round %d%s", done, f" of {total}" if total else "")
        self._listener.tell("ready", self._made, self._folder)
        self._first, self._job.engine.pulse = done, self._pulse
        state, done = self._rounds(state, done, history)
        self._save(state, done)
        return self._finish(here(state), done, history, STOPPED if self._wished else FINISHED)

    def _rounds(self, state: State, done: int, history: list[Row]) -> tuple[State, int]:
        """Train up to the last round, unless the run is to stop or diverges."""
        save_every = self._config.checkpoint_every
        try:
            for stretch in stretches(
                self._trainer, self._job.evaluate, [self._job.costs], state, done, self._config,
                save_every=save_every, pausing=self._stop is not None, target=self._made.target, history=history,
            ):  # fmt: skip
                self._seconds += stretch.seconds
                if problem := self._divergence(stretch):
                    self._give_up(problem, state, done, history, stretch)
                state, done = stretch.states, stretch.done
                self._tell(stretch, history)
                if self._wished:
                    break
                stopped = self._stopped and self._more(done, history)
                if save_every and self._more(done, history) and (stopped or done % save_every == 0):
                    self._save(state, done)
                    self._write_ledger(done)
                if stopped:
                    self._leave(done)
        except ListenerError:
            if done:
                self._kept.save(here(state), done)
            raise
        except RoundGivenUpError:
            if save_every and done > self._first and done % save_every:
                self._save(state, done)
            self._leave(done, f" (round {done + 1} was given up)")
        return state, done

    def _tell(self, stretch: Stretch, history: list[Row]) -> None:
        """Write down what came of a stretch, and tell of it; where a listener wishes to stop, its end is tested too."""
        rows = list(stretch.rows)
        self._write(rows, history)
        wished = self._listener.tell("trained", stretch.done, float(stretch.losses[0]), self._config)
        if wished and not rows:
            rows = self._test(stretch)
            self._write(rows, history)
        for row in rows:
            wished |= self._listener.tell("tested", row, self._config)
        self._wished = wished and self._more(stretch.done, history)

    def _write(self, rows: list[Row], history: list[Row]) -> None:
        for row in rows:
            self._kept.row(row)
            history.append(row)

    def _save(self, state: State, done: int) -> None:
        """Save a state after these rounds, and tell of it."""
        self._kept.save(here(state), done)
        self._listener.tell("saved", self._folder / checkpoint.NEWEST, done)

    def _write_ledger(self, done: int) -> None:
        """Let a page show what links carried so far and who waited; where there are very many, the end tells."""
        if self._kept.folder is not None and self._made.topology.clients <= FEW:
            self._kept.account(self._ledger(done))

    def _ledger(self, done: int) -> dict[str, Any]:
        costs = self._job.costs
        return {"round": done} | costs.links(done) | {"waiting": waiting_of(costs.waits(done))}

    def _more(self, done: int, history: list[Row]) -> bool:
        """Tell whether another round follows the first `done`, whose rows these are."""
        target = self._made.target
        return self._job.costs.more(done) and not (target and target.is_met(history))

    @property
    def _stopped(self) -> bool:
        return self._stop is not None and self._stop.signal is not None

    def _pulse(self, index: int, part: float) -> None:
        """Look up inside a round that takes several calls, so that nobody has to wait for its end."""
        if self._stopped:
            raise RoundGivenUpError
        self._listener.tell("part", index + 1, part, self._config)

    def _restore(self) -> Progress:
        """Read the newest state that was saved, and the rows up to it."""
        state, done, rows = self._kept.restore(self._made.start)
        costs, every = self._job.costs, self._config.eval_every
        if done and not costs.more(done - 1):
            raise RunError(
                f"{self._folder} already holds {done} rounds, more than the run is to have; give more rounds"
            )

        def due(number: int) -> bool:
            return number % every == 0 or (number == done and not costs.more(done))

        mine = [row for row in rows if due(row["round"])]  # a run that was extended has one more where it once ended
        if [row["round"] for row in mine] != [number for number in range(1, done + 1) if due(number)]:
            raise RunError(f"{self._folder / record.METRICS} lacks rounds that were evaluated; restore it")
        early = self._made.target and self._made.target.reached(mine)
        if early and early.round < done:
            raise RunError(
                f"{self._folder} already holds {done} rounds, and {early.metric} was at target={early.target:g} after "
                f"round {early.round}; give a target that it was not at yet"
            )
        self._agree(done)
        return Progress(state, done, mine)

    def _agree(self, done: int) -> None:
        """Check that several processes run the same experiment from the same round on."""
        if device.processes() == 1:
            return
        mine = [self._config.model_dump(), self._job.objects, done, identity.code_digest()]
        what = identity.digest_of(identity.canonical(mine))
        words = np.frombuffer(bytes.fromhex(what), np.int32)
        if (multihost_utils.process_allgather(words) != words).any():
            raise RunError("the processes have different words, data, checkpoints or code; give all of them the same")

    def _divergence(self, stretch: Stretch) -> str | None:
        """Say what is no longer a finite number, if anything is."""
        if not np.isfinite(stretch.losses).all() or any(row["loss"] is None for row in stretch.rows):
            return "its loss is not a finite number"
        return None if is_finite(stretch.states) else "some of its weights are not finite numbers"

    def _give_up(self, problem: str, state: State, done: int, history: list[Row], stretch: Stretch) -> NoReturn:
        """End a run that diverged, with the last state that was good."""
        state = here(state)
        self._kept.save(state, done)
        rows = stretch.rows or self._test(stretch)
        for row in rows:
            self._kept.row(row)
        result = self._finish(state, done, history + rows, DIVERGED)
        when = f"in round {done + 1}" if stretch.done == done + 1 else f"between rounds {done} and {stretch.done}"
        raise DivergenceError(f"{self._config.algorithm} diverged {when}: {problem}; {self._cause(done)}", result)

    def _test(self, stretch: Stretch) -> list[Row]:
        """Make the rows of a stretch after which it was not time to test."""
        rows = self._job.evaluate(self._trainer.stacked(stretch.states), stretch.done, stretch.losses)
        spent = self._job.costs.after(stretch.done)
        return [row | {"bytes": spent.sent, "simulated_seconds": spent.seconds} for row in rows]

    def _cause(self, done: int) -> str:
        x = self._made.job.data.x
        if np.issubdtype(x.dtype, np.floating) and not np.isfinite(x).all():
            cause = "the training images hold values that are not finite numbers; clean them"
        elif not is_finite(self._made.start):
            cause = "the initial weights already hold values that are not finite numbers; look at the model"
        else:
            cause = f"the likely cause is the learning rate; lower lr (now {self._config.lr:g})"
        kept = f"; the state after round {done} is kept in {self._folder}" if self._kept.folder else ""
        return cause + kept

    def _leave(self, done: int, note: str = "") -> NoReturn:
        assert self._stop is not None
        total = self._job.costs.rounds
        how = f"continue with: fedge run --resume {self._folder}"
        if not self._config.checkpoint_every:
            how = "with checkpoint_every=0 no state was saved, so it cannot be continued"
        raise StoppedError(
            f"stopped after round {done}{f' of {total}' if total else ''}{note}; {how}", self._stop.signal or 2
        )

    def _finish(self, state: State, done: int, history: list[Row], ending: str) -> Result:
        compiling = self._job.engine.compile_seconds - self._compiled
        steps = self._made.job.steps_per_round * (done - self._first)
        result = self._result(
            state, history,
            wall_seconds=time.perf_counter() - self._began,
            compile_seconds=compiling,
            client_steps_per_second=steps / max(self._seconds - compiling, 1e-9) if steps else 0.0,
            diverged=ending == DIVERGED,
            stopped=ending == STOPPED,
        )  # fmt: skip
        self._kept.finish(result.weights, self._ledger(done), result.to_json(), ending)
        self._listener.tell("finished", result)
        return result

    def _repeat_result(self, stored: dict[str, Any], state: State, done: int, history: list[Row]) -> Result:
        """Return the result of a run that was already over, as it was recorded."""
        log.info("the run in %s was already complete", self._folder)
        numbers = {k: stored[k] for k in ("wall_seconds", "compile_seconds", "client_steps_per_second")}
        diverged = stored.get("diverged") is True
        if diverged:
            history = stored["history"]
        result = self._result(state, history, diverged=diverged, **numbers)
        if diverged:
            raise DivergenceError(f"the run in {self._folder} diverged; {self._cause(done)}", result)
        return result

    def _result(self, state: State, history: list[Row], **numbers: Any) -> Result:
        made, weights = self._made, self._made.evaluated(state)
        reached = made.target.reached(history) if made.target and not numbers["diverged"] else None
        return Result(
            algorithm=self._config.algorithm, config=self._config, history=history, parameters=made.model.parameters,
            out=self._folder, read_weights=lambda: weights, make=lambda: made, reached=reached, **numbers,
        )  # fmt: skip
