"""The command itself: its verbs, and those of them that both lines share."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import click

from muvap_assets.asd.policy import AudioSampleRate, Policy
from muvap_assets.cli import asd, ops, ref2va
from muvap_assets.cli.ending import end_at_first_signal
from muvap_assets.cli.lazy import LazyGroup
from muvap_assets.cli.options import option, record_options, refuse_given
from muvap_assets.cli.output import say
from muvap_assets.cli.paths import FILE, FOLDER, NEW_FOLDER
from muvap_assets.cli.show import show
from muvap_assets.errors import MuvapError
from muvap_assets.options import NOT_CONTENT, ItemTimeout, options_of
from muvap_assets.ref2va.contract import DatasetOptions
from muvap_assets.threads import ITEM_TIMEOUT_SEC


class _Group(click.Group):
    """Turns whatever ends a run into one message and an exit code, never a traceback.

    1 for errors of ours and of the system (a full disk, a folder closed to us), 130 for Ctrl-C and 143 for SIGTERM, as shells
    count them. What was staged is removed on the way out; what was published stands as it was.
    """

    def invoke(self, context: click.Context) -> Any:
        try:
            with _terminable():
                return super().invoke(context)
        except MuvapError as error:
            for line in f"error: {error}".split("\n"):
                say(line, err=True)
            context.exit(1)
        except BrokenPipeError:
            raise  # whoever read our output has left; click ends quietly
        except OSError as error:
            where = f"{error.filename}: " if error.filename is not None else ""
            say(f"error: {where}{error.strerror or error}. Check the path, its permissions and the disk.", err=True)
            context.exit(1)
        except KeyboardInterrupt:
            say("interrupted: what was published stands as it was", err=True)
            context.exit(128 + signal.SIGINT)


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM ends the block as Ctrl-C does, by an exception that lets what was staged be removed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def terminate(number: int, frame: FrameType | None) -> NoReturn:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="muvap-assets")
def main() -> None:
    """Checked, versioned training data for audio-visual models."""


@main.command()
@click.argument("file", type=FILE)
@click.option("--json", "as_json", is_flag=True, help="Print the whole verdict as one JSON object.")
@click.option("--deep", is_flag=True, help="TSV: read and decode every face too, which takes as long as packing does.")
@option("audio_sample_rate", AudioSampleRate, None, of="tsv")
@record_options(Policy, but=(*asd.AFTER_VALIDATION, *NOT_CONTENT), of="tsv")
@click.option("--checkpoint", type=FOLDER, help="ref2va: counts tokens with this checkpoint's tokenizer and processor.")
@record_options(DatasetOptions, but=(*ref2va.AFTER_VALIDATION, *NOT_CONTENT), of="ref2va")
@option("item_timeout_sec", ItemTimeout, ITEM_TIMEOUT_SEC)
def validate(file: Path, as_json: bool, deep: bool, **options: Any) -> None:
    """Check a manifest and its media; nothing is written.

    FILE is the canonical TSV of an active-speaker corpus, or JSON or JSON Lines of a ref2va dataset, by its name. Exits 0 where
    it would be published, 1 where it would not.
    """
    context = click.get_current_context()
    of_ref2va = {"checkpoint", *(each.name for each in options_of(DatasetOptions))} - NOT_CONTENT
    if file.suffix.lower() in ref2va.SUFFIXES:
        refuse_given(
            context,
            {"deep", *options} - of_ref2va - NOT_CONTENT,
            f"{file}, a ref2va dataset by its name",
            "the canonical TSV of a corpus",
        )
        sys.exit(ref2va.validate_ref2va(file, as_json=as_json, **options))
    refuse_given(
        context, of_ref2va, f"{file}, a canonical TSV by its name", f"a ref2va dataset ({', '.join(ref2va.SUFFIXES)})"
    )
    sys.exit(asd.validate_tsv(file, as_json=as_json, deep=deep, **options))


@main.command()
@click.argument("folder", type=FOLDER)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def inspect(folder: Path, as_json: bool) -> None:
    """Print what is in FOLDER, a pack or a published ref2va dataset."""
    (ref2va.inspect_dataset if ref2va.is_dataset(folder) else asd.inspect_pack)(folder, as_json=as_json)


@main.command()
@click.argument("folder", type=FOLDER)
@click.option("--full", is_flag=True, help="ref2va: read every shard, also those whose size and time did not change.")
def verify(folder: Path, full: bool) -> None:
    """Check everything that FOLDER, a pack or a ref2va dataset, promises. Exits 1 where something does not hold.

    A pack is read whole; of a dataset, the shards that changed since they were indexed, or all with --full.
    """
    if ref2va.is_dataset(folder):
        sys.exit(ref2va.verify_dataset_folder(folder, full=full))
    refuse_given(click.get_current_context(), ["full"], f"{folder}, a pack, which is read whole", "a ref2va dataset")
    sys.exit(asd.verify_pack_folder(folder))


@main.command()
@click.argument("folder", type=NEW_FOLDER)
def demo(folder: Path) -> None:
    """Write the demo's sources into FOLDER: an active-speaker corpus, two ref2va datasets and a tiny checkpoint."""
    from muvap_assets.demo.sources import write_sources

    written = write_sources(folder)
    say(f"{folder}: {'written' if written else 'unchanged'}")


for command in (asd.pack, ref2va.encode, ref2va.tiny_checkpoint, ref2va.index, ref2va.capacities, show, *ops.COMMANDS):
    main.add_command(command)
platform = LazyGroup(
    "ops",
    "muvap_assets.defs.ops",
    "ops",
    "Look after the platform: its runs, for which it needs Dagster, and its data root.",
)
platform.add_command(ops.adopt_root)
main.add_command(platform)


def run() -> None:
    """The command as a process of its own."""
    end_at_first_signal()
    main(prog_name="muvap")


if __name__ == "__main__":
    run()
