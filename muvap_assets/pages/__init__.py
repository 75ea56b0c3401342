"""Pages for looking at one sample: a file of HTML that needs no network, no server and no other file.

``document`` puts a page together, ``media`` turns arrays into data URIs, ``lanes`` draws what lies along a time axis.
``asd_sample`` is the page of a pack's sample, ``ref2va_row`` that of a row of a published dataset. Knows both lines and
nothing of Dagster. The same sample gives the same bytes.
"""
