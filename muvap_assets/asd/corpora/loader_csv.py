"""The layout AVA and WASD share: a loader CSV, a folder of crops a track, a WAV a track; and its keys in ``datasets.yaml``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import StringConstraints

from muvap_assets.asd.contract import ParsedManifest
from muvap_assets.asd.corpora.entry import CorpusEntry


class LoaderCorpus(CorpusEntry):
    """A split of a corpus in the layout of the AVA tools. Paths are absolute once parsed; each has its published place.

    ``audio_kind`` says what ``audio`` holds: a WAV a track, cut to it, or the recordings the tracks lie on.
    """

    root: Path
    split: Annotated[str, StringConstraints(pattern=r"[A-Za-z0-9_-]{1,40}")]
    loader: Path | None = None
    original: Path | None = None
    faces: Path | None = None
    audio: Path | None = None
    audio_kind: Literal["clips", "recordings"] = "clips"
    labels_known: bool | None = None

    @property
    def folder(self) -> Path:
        """The root of the corpus."""
        return self.root

    def inputs(self) -> Mapping[str, Path]:
        """The loader CSV and the original one."""
        return {"loader": self.loader_file, "original": self.original_file}

    @property
    def loader_file(self) -> Path:
        """``csv/<split>_loader.csv`` unless another was given."""
        return self.loader or self.root / "csv" / f"{self.split}_loader.csv"

    @property
    def original_file(self) -> Path:
        """``csv/<split>_orig.csv`` unless another was given."""
        return self.original or self.root / "csv" / f"{self.split}_orig.csv"


def read_loader(corpus: LoaderCorpus) -> ParsedManifest:
    """The rows of a loader CSV."""
    raise NotImplementedError
