"""WASD as it is shipped."""

from __future__ import annotations

from typing import Literal

from muvap_assets.asd.contract import ParsedManifest
from muvap_assets.asd.corpora.loader_csv import LoaderCorpus, read_loader


class WasdCorpus(LoaderCorpus):
    """A split of WASD."""

    kind: Literal["wasd"]

    def read(self) -> ParsedManifest:
        """See :func:`read_wasd`."""
        return read_wasd(self)


def read_wasd(corpus: WasdCorpus) -> ParsedManifest:
    """The rows of a split of WASD."""
    return read_loader(corpus)
