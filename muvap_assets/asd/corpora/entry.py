"""What an entry of ``datasets.yaml`` says about any corpus; each kind adds its own paths, in the file of its reader.

A new kind is one file here, with a subclass that has ``kind``, ``folder``, ``read`` and ``inputs``, and one row in the
union of ``datasets.py``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from muvap_assets.asd.contract import ParsedManifest
from muvap_assets.asd.policy import SHARD_BYTES, Policy, ShardBytes
from muvap_assets.options import keys_of, made_of
from muvap_assets.storage.paths import expanded


def _expanded(value: object) -> object:
    return expanded(value) if isinstance(value, str) else value


EntryPath = Annotated[Path, BeforeValidator(_expanded)]
"""A path as an entry writes it, ``~`` and ``$NAME`` expanded."""
Hours = Annotated[float, Field(ge=0.02, le=87_600, allow_inf_nan=False)]
"""An age. Dagster takes no window below a minute, and Python no time span of more than some millennia: ten years do."""


if TYPE_CHECKING:
    _PolicyKeys = BaseModel
else:
    _PolicyKeys = keys_of(Policy)


class CorpusEntry(_PolicyKeys):
    """The options every kind of corpus takes, those of :class:`Policy` and these; itself the :class:`CorpusSource` of its corpus.

    ``dataset`` names it inside packs; where none is given that is the partition key.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    dataset: Annotated[str, StringConstraints(min_length=1, max_length=100)] | None = None
    shard_bytes: ShardBytes = SHARD_BYTES
    max_age_hours: Hours | None = None

    @property
    def policy(self) -> Policy:
        """How strictly the corpus is held to the contract."""
        return made_of(Policy, dict(self))

    def resolved(self, resolve: Callable[[Path], Path]) -> Self:
        """The same entry with every path made absolute by ``resolve``."""
        paths = {name: value for name, value in self if isinstance(value, Path)}
        return self.model_copy(update={name: resolve(path) for name, path in paths.items()})

    @property
    @abstractmethod
    def folder(self) -> Path:
        """The folder that relative paths of the rows are meant from."""

    @abstractmethod
    def read(self) -> ParsedManifest:
        """Every row of the corpus, its media not opened yet. Never raises for what the files hold."""

    @abstractmethod
    def inputs(self) -> Mapping[str, Path]:
        """The text files the rows are made from, by the name their digests are recorded under."""

    def media(self) -> Iterable[str]:
        """Every media path that the rows name, as they write it, whether or not it is there."""
        for row in self.read().rows:
            yield from (row.audio_path, row.visual_path)
            if row.boxes is not None:
                yield row.boxes.boxes_path

    def listings(self) -> tuple[Path, ...]:
        """Folders whose entries, two levels deep, decide beside the texts which paths the rows name; here none."""
        return ()
