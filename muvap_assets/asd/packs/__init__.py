"""Packed shards: everything of a corpus, decoded once, in arrays that are mapped and not read.

This is the package's face; import from here. Read :mod:`~muvap_assets.asd.packs.layout` first, it holds the byte layout.

    layout ◄─ plan ◄─ audio_writer, face_writer ◄─ writer      clips -> a pack
       ▲
       └───── reader ◄─ summary, verify                        a pack -> records, numbers, checks

Importing it loads neither torch nor cv2; decoding JPEG crops loads cv2.
"""

from muvap_assets.asd.packs.layout import PACK_CODE_VERSION, PackEntry, PackHeader
from muvap_assets.asd.packs.plan import Placed, ShardPlan, plan_shards
from muvap_assets.asd.packs.reader import PackedSample, PackReader
from muvap_assets.asd.packs.summary import PackSummary, summarize_pack
from muvap_assets.asd.packs.verify import PACK_CHECKS, verify_pack
from muvap_assets.asd.packs.writer import write_pack

__all__ = [
    "PACK_CHECKS",
    "PACK_CODE_VERSION",
    "PackEntry",
    "PackHeader",
    "PackReader",
    "PackSummary",
    "PackedSample",
    "Placed",
    "ShardPlan",
    "plan_shards",
    "summarize_pack",
    "verify_pack",
    "write_pack",
]
