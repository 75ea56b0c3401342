"""One idea of a plan and of resuming, for the batch samplers of both lines.

    plan        what the order is made of: the data's version, the seed, ...; not the world, which may change
    pass        the steps of one epoch that are left for this world, from a state or from the beginning
    state       {"plan": ..., "epoch": 3, "consumed": ...}: plain JSON, the same on every rank

``consumed`` says which rows were trained on, never how many steps that took. So a state of 8 ranks resumes on 6: each row
that is not consumed is in the rest of the epoch. A batch counts as consumed when the trainer has had it, which a sampler cannot
see where workers read ahead; see :meth:`ResumableBatchSampler.state_dict`.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, Generic, Protocol, TypeVar

from muvap_assets.errors import ConfigError

_LOG = logging.getLogger(__name__)
_STATE_KEYS = {"plan", "epoch", "consumed"}
_SHOWN = 5

Batch = TypeVar("Batch", bound=list[int])
Batch_co = TypeVar("Batch_co", bound=list[int], covariant=True)


class Pass(Protocol[Batch_co]):
    """The steps that are left of an epoch, as one rank sees them. Its text is one line for the log."""

    def __len__(self) -> int:
        """Steps; the same on every rank."""
        ...

    @property
    def repeats(self) -> dict[str, int]:
        """Rows drawn again so that every rank has as many, by the name of what they fill; empty for none."""
        ...

    def batches(self) -> Iterator[Batch_co]:
        """This rank's batch of every step."""
        ...

    def consumed(self, steps: int) -> Any:
        """What of the epoch is consumed after so many steps of this pass, as plain JSON; the same on every rank."""
        ...


class ResumableBatchSampler(ABC, Generic[Batch]):
    """A ``batch_sampler`` for torch's DataLoader whose place within an epoch can be saved, and loaded in another world.

    Iterating begins a pass: the rest of the epoch after a state was loaded, and else the whole of it.
    """

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._epoch = 0
        self._pass: Pass[Batch] | None = None
        self._begun = False
        self._handed = 0

    @abstractmethod
    def fingerprint(self) -> dict[str, Any]:
        """What the order is made of, as plain JSON. A state of another plan is refused."""

    @abstractmethod
    def _plan_pass(self, epoch: int, consumed: Any) -> Pass[Batch]:
        """The pass after ``consumed``, which :meth:`Pass.consumed` gave and a file may have changed; ``None``: nothing.

        Raises:
            ConfigError: nothing of this plan can have consumed that.
        """

    @property
    def epoch(self) -> int:
        """The epoch of the pass."""
        return self._epoch

    @property
    def repeats(self) -> dict[str, int]:
        """Rows that the pass draws again so that every rank has as many, by the name of what they fill; empty for none."""
        return self._planned().repeats

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch. The one a state was loaded of keeps its place; any other begins at its first batch."""
        if epoch != self._epoch:
            self._epoch, self._pass, self._begun, self._handed = int(epoch), None, False, 0

    def __len__(self) -> int:
        """Steps of the pass that was begun last, or before that of the one to come; the same on every rank."""
        return len(self._planned())

    def __iter__(self) -> Iterator[Batch]:
        """This rank's batches of a new pass, which begins with the first of them: loaders make an iterator twice."""
        if self._begun:
            self._pass = None
        run, self._begun, self._handed = self._planned(), True, 0
        for batch in run.batches():
            self._handed += 1
            yield batch

    def _planned(self) -> Pass[Batch]:
        if self._pass is None:
            self._pass = self._plan_pass(self._epoch, None)
            self._log(self._pass)
        return self._pass

    def _log(self, run: Pass[Batch]) -> None:
        if self._rank == 0:
            _LOG.info("sampler: epoch %d: %s", self._epoch, run)

    def state_dict(self, consumed: int | None = None) -> dict[str, Any]:
        """The place within the epoch; plain JSON, the same on every rank: one is saved, and all ranks load it.

        Args:
            consumed: batches of this pass that this rank trained on. Needed with torch's DataLoader where workers read ahead,
                since the sampler has handed out more than the loader gave. Without it those handed out count, which
                is right without workers and with torchdata's StatefulDataLoader, which keeps the state of each batch.

        Raises:
            ConfigError: the pass has fewer batches.
        """
        run = self._planned()
        steps = self._handed if consumed is None else consumed
        if not 0 <= steps <= len(run):
            raise ConfigError(
                f"sampler: {steps} batches consumed; required: 0 to {len(run)}, the batches of this pass. Count from 0 "
                "where a pass begins, also after a state was loaded."
            )
        return {"plan": self.fingerprint(), "epoch": self._epoch, "consumed": run.consumed(steps)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on after what a state counts as consumed, whatever the world it was saved in. A refused state changes nothing.

        Raises:
            ConfigError: it is no state of a sampler, or of another plan; every part that differs is named.
        """
        if not isinstance(state, Mapping) or set(state) != _STATE_KEYS:
            found = sorted(map(str, state)) if isinstance(state, Mapping) else type(state).__name__
            raise ConfigError(
                f"sampler state: holds {found}; required: {sorted(_STATE_KEYS)}. Load what state_dict() of this version gave, or "
                "begin the epoch again."
            )
        if differing := _differences("", state["plan"], self.fingerprint()):
            more = f" and {len(differing) - _SHOWN} more" if len(differing) > _SHOWN else ""
            raise ConfigError(
                f"sampler state of another plan: {'; '.join(differing[:_SHOWN])}{more}; required: the plan it was saved with. "
                "Resume with the same data and settings, or begin the epoch again."
            )
        epoch = state["epoch"]
        if not isinstance(epoch, int) or isinstance(epoch, bool) or epoch < 0:
            raise ConfigError(
                f"sampler state: epoch {epoch!r}; required: a whole number from 0 on. Load an unchanged state."
            )
        if state["consumed"] is None:
            raise wrong_consumption("null", "what of the epoch is consumed")
        resumed = self._plan_pass(epoch, state["consumed"])
        if not len(resumed) and self._epoch == epoch + 1:
            # StatefulDataLoader loads when it is iterated, and the trainer has gone on to the next epoch by then: all of that.
            self._pass, self._begun, self._handed = None, False, 0
            return
        self._epoch, self._pass, self._begun, self._handed = epoch, resumed, False, 0
        self._log(resumed)


def wrong_consumption(found: object, required: str) -> ConfigError:
    """The error for a ``consumed`` that no pass of the plan gives."""
    return ConfigError(f"sampler state: consumed {found}; required: {required}. Load an unchanged state.")


def _differences(where: str, saved: Any, here: Any) -> list[str]:
    """The parts in which two plans differ, by name."""
    if isinstance(saved, Mapping) and isinstance(here, Mapping):
        return [
            text
            for name in dict.fromkeys([*saved, *here])
            for text in _differences(f"{where}.{name}" if where else str(name), saved.get(name), here.get(name))
        ]
    return [] if saved == here else [f"{where or 'plan'} was {_shown(saved)}, is {_shown(here)}"]


def _shown(value: Any) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= 80 else text[:77] + "..."
