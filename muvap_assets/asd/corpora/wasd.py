"""WASD as it is shipped. The layout is ``loader_csv``'s; here stands what only WASD has.

A ``video_id`` is a video and a range of it, such as ``G16p2gY-26M_905-935``, longer than AVA's; times count from the range's
start. Clips may instead be played from the whole recording (``audio_kind: recordings``), whose offset only the original CSV
tells: it cannot be recovered from the rate and the labels. Source: the audio-visual data contract, "Dataset policy".
"""

from __future__ import annotations

from typing import Literal

from muvap_assets.asd.corpora.loader_csv import CorpusFacts, LoaderCorpus

_EXTRA_CROPS = (
    "Known of WASD train as shipped: nine tracks of the videos G16p2gY-26M_905-935, Ve_wd6pcZwY_70-100 and "
    "WZkEgX7lfQs_10-35 hold extra crops (such as 0.07, 29.83 and 29.90); delete the extra crops named here, or use a "
    "corrected loader CSV."
)
KNOWN_DEFECTS = dict.fromkeys(("G16p2gY-26M_905-935", "Ve_wd6pcZwY_70-100", "WZkEgX7lfQs_10-35"), _EXTRA_CROPS)
"""What is wrong with videos of WASD as it is shipped, by video id."""


class WasdCorpus(LoaderCorpus):
    """A split of WASD: ``train`` or ``val``."""

    kind: Literal["wasd"]

    @property
    def facts(self) -> CorpusFacts:
        """What is wrong with ``train`` as it is shipped."""
        defects = KNOWN_DEFECTS if self.split == "train" else {}
        return CorpusFacts(labels_known=True, tools="The WASD scripts", defects=defects)
