"""What the page of any asset shows beside its own figures: version, inputs, what came before, duration, pictures.

Belongs here: the parts that all pages share. The figures of each asset are ``asd_pages``' and ``ref2va_pages``'.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from muvap_assets.columns import Column
from muvap_assets.defs import metadata
from muvap_assets.disk import file_states
from muvap_assets.layout import Artifact
from muvap_assets.pictures.canvas import Picture
from muvap_assets.progress import Work
from muvap_assets.provenance import read_inputs
from muvap_assets.publish import Published
from muvap_assets.text_lines import line
from muvap_assets.versions import previous_version


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What one materialization shows.

    ``values`` are metadata as they are; each of ``pictures`` may fail for itself, and takes nothing else with it.
    """

    values: Mapping[str, Any]
    work: Work
    pictures: Mapping[str, Callable[[], Sequence[Picture]]] = field(default_factory=dict)


def definition_metadata(guide: str, columns: Sequence[Column]) -> dict[str, Any]:
    """What an asset's page shows before anything is materialized: where to read more, and its columns.

    Args:
        guide: the document about its line, below the repository's root.
        columns: of the table it writes.
    """
    return {
        "guide": dg.MetadataValue.path(guide),
        "operations": dg.MetadataValue.path("docs/operations.md"),
        "dagster/column_schema": metadata.column_schema(columns),
    }


def page_metadata(
    page: Page, artifact: Artifact, published: Published, seconds: float, log: logging.Logger
) -> dict[str, Any]:
    """All metadata of a materialization, its pictures first; ``seconds`` is how long the work took."""
    return {
        **dict(_drawn(page.pictures, log)),
        **metadata.of_numbers(page.values),
        **metadata.of_work(page.work, seconds),
        **_version(artifact, published),
    }


def _version(artifact: Artifact, published: Published) -> dict[str, Any]:
    place = f"{artifact.line}/{artifact.name}/{artifact.partition}"
    before = previous_version(artifact)
    values: dict[str, Any] = {
        "path": dg.MetadataValue.path(str(published.path)),
        "dagster/uri": published.path.resolve().as_uri(),
        "version": published.version,
        "newly_published": published.created,
        "size_bytes": sum(state.st_size for state in file_states(published.path)),
        "inputs": dg.MetadataValue.json(read_inputs(published.path)),
    }
    if before is not None:
        values["previous_version"] = before
        values["compare"] = dg.MetadataValue.md(f"`muvap diff {place}@{before} {place}@{published.version}`")
    return values


def _drawn(
    pictures: Mapping[str, Callable[[], Sequence[Picture]]], log: logging.Logger
) -> Iterator[tuple[str, dg.MetadataValue[Any]]]:
    for name, draw in pictures.items():
        try:
            for picture in draw():
                yield f"picture_{picture.name}", metadata.of_picture(picture)
        except Exception as error:  # what was published stands: a picture of it, or a missing font, must not unmake it
            reason = line(f"{type(error).__name__}: {error}")
            log.warning(f"the picture {name!r} was not drawn: {reason}")
            yield f"picture_{name}", dg.MetadataValue.text(f"not drawn: {reason}")
