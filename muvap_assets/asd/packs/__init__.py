"""Packed shards: everything of a corpus, decoded once, in arrays that are mapped and not read.

Read :mod:`~muvap_assets.asd.packs.layout` first, it holds the byte layout.

    layout ◄─ plan ◄─ audio_writer, face_writer ◄─ writer      clips -> a pack
       ▲
       └───── reader ◄─ summary, verify                        a pack -> records, numbers, checks

Importing it loads neither torch nor cv2; decoding JPEG crops loads cv2.
"""
