"""AVA-ActiveSpeaker as its training tools lay it out. The layout is ``loader_csv``'s; here stands what only AVA has.

``entity_id`` is ``<video_id>_<start>_<end>:<number>``; videos run at their own rates, most of them not at 25 or 30.
The labels of ``test`` were never published: its loader CSV is filled with ones.
"""

from __future__ import annotations

from typing import Literal

from muvap_assets.asd.corpora.loader_csv import CorpusFacts, LoaderCorpus

_LOST_CROPS = (
    "Known of AVA: extractions lose crops (24,776 of train and 7,744 of val in one report), and a stopped one keeps what it "
    "had half written; run the extraction of this video again."
)


class AvaCorpus(LoaderCorpus):
    """A split of AVA-ActiveSpeaker: ``train``, ``val`` or ``test``."""

    kind: Literal["ava"]

    @property
    def facts(self) -> CorpusFacts:
        """Only the labels of ``test`` are none."""
        tools = "ASC, TalkNet and Light-ASD"
        return CorpusFacts(labels_known=self.split != "test", tools=tools, any_defect=_LOST_CROPS)
