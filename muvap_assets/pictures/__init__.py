"""Small pictures of what was published: domain values in, a figure or PNG bytes out.

Belongs here: drawing, and reading the few rows that are drawn. Each module has a function that makes the figure from plain
values, and one that reads them, bounded in rows and frames, and returns a :class:`canvas.Picture`. The same input gives the
same bytes. matplotlib is imported inside functions, so that nobody waits for it who does not draw.
"""
