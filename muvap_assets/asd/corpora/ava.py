"""AVA-ActiveSpeaker as it is shipped."""

from __future__ import annotations

from typing import Literal

from muvap_assets.asd.contract import ParsedManifest
from muvap_assets.asd.corpora.loader_csv import LoaderCorpus, read_loader


class AvaCorpus(LoaderCorpus):
    """A split of AVA-ActiveSpeaker."""

    kind: Literal["ava"]

    def read(self) -> ParsedManifest:
        """See :func:`read_ava`."""
        return read_ava(self)


def read_ava(corpus: AvaCorpus) -> ParsedManifest:
    """The rows of a split of AVA-ActiveSpeaker."""
    return read_loader(corpus)
