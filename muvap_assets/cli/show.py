"""The verb that writes a page about one sample. The domain is imported when it runs, so that ``muvap --help`` is quick."""

from __future__ import annotations

from pathlib import Path

import click

from muvap_assets.cli.options import refuse_given
from muvap_assets.cli.output import say
from muvap_assets.cli.paths import FOLDER, NEW_FILE
from muvap_assets.cli.ref2va import is_dataset


@click.command()
@click.argument("folder", type=FOLDER)
@click.argument("name")
@click.option("-o", "--output", required=True, type=NEW_FILE, help="The file to write.")
@click.option("--start-sec", help="Pack: show the sample from this second on, a decimal or a fraction.")
@click.option("--seconds", help="Pack: show so many seconds of it; the page says that it is a part.")
def show(folder: Path, name: str, output: Path, start_sec: str | None, seconds: str | None) -> None:
    """Write a page about one sample, to be opened in a browser: one file, no network.

    FOLDER is a pack and NAME a sample_id: sound, faces, labels and targets on one time axis. Or FOLDER is a published ref2va
    dataset and NAME a row's id: caption, references, sequence and latents.
    """
    from muvap_assets.pages.document import write_page

    if is_dataset(folder):
        from muvap_assets.pages.ref2va_row import row_page

        refuse_given(click.get_current_context(), ["start_sec", "seconds"], "a ref2va row", "a pack")
        page = row_page(folder, name)
    else:
        from muvap_assets.pages.asd_sample import Part, sample_page

        page = sample_page(folder, name, Part.parse(start_sec, seconds))
    write_page(output, page)
    say(f"{output}: {len(page.encode()):,} bytes")
