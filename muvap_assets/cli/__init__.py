"""The ``muvap`` command: thin verbs over the domain, without Dagster.

Exit codes: 0 done, 1 the data or a file is not good enough, 2 the command was used wrongly. Results go to standard output,
progress and errors to standard error. ``main`` holds the command itself, ``asd`` and ``ref2va`` the verbs of one line each.
"""
