"""Kills what changes a data root at steps it was stopped at before, and tells what became of the root.

Each operation of a line runs once undisturbed. Its steps are what it does to names below the root, as Python's audit events
tell, and the writes of packs; a step's name holds no random part, so that it is met again in another run. Then a fork runs the
same on a copy of the root, stops itself before one step, is seen to be stopped, and is killed. One more is ended by the kernel
in the middle of the largest file that the operation writes, by whatever code that is written.

Called as ``python killed_operations.py LINE FOLDER CHECKPOINT COUNT [OPERATION ...]``; prints a JSON line an operation. What is no
stage of a line is killed a third as often.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corpus_builder import CorpusBuilder

from muvap_assets.asd.line import REUSE_FILE
from muvap_assets.errors import MuvapError
from muvap_assets.journal import events
from muvap_assets.layout import Artifact, Layout
from muvap_assets.publish import Outcome, current_version
from muvap_assets.retention import Retention, maintain
from muvap_assets.storage.digests import SETTLED_SEC, file_sha256
from muvap_assets.takedown import Takedown, purge
from muvap_assets.versions import artifacts, require_whole, roll_back, standing_versions

AT_ONCE = Retention(keep_versions=0, grace_sec=0, row_grace_sec=0)
NAMING = {"os.rename", "os.link", "os.symlink", "os.mkdir", "os.remove", "os.rmdir", "os.truncate"}
BY_DESCRIPTOR = ("pwrite", "posix_fallocate")  # no audit event tells of them
RANDOM = re.compile(r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])")
LANDMARKS = {
    "before current moves": re.compile(r"os\.rename .* -> .*/current$"),
    "before the journal's line": re.compile(r"append journal/"),
    "before the link": re.compile(r"os\.symlink .*/current-"),
    "before the version": re.compile(r"os\.rename \.staging/.* -> (asd|ref2va)/.*/[0-9a-f]{16}$"),
    "amid a file": re.compile(r"pwrite \.staging/"),
    "first file in staging": re.compile(r"open \.staging/.*/tree/"),
}

Step = tuple[str, int]  # a name, and the how manieth of that name


@dataclass(frozen=True)
class Operation:
    """Something that changes the root: ``act`` runs it, and ``artifact`` is what it publishes, if it does."""

    name: str
    act: Callable[[], object]
    artifact: Artifact | None = None
    pauses: bool = True
    """Whether maintenance may come between a killed run and the next."""


# --- the two lines ------------------------------------------------------------------------------------------------------


def asd_line(layout: Layout, sources: Path, checkpoint: Path) -> tuple[Callable[[], None], list[Operation]]:
    """What publishes a first state of a corpus, and the operations that follow with a second one."""
    from muvap_assets.asd import line
    from muvap_assets.asd.contract import Corpus
    from muvap_assets.asd.corpora.tsv import TsvCorpus

    builder = CorpusBuilder(sources)
    for first_frame, name in enumerate(("gone", "kept", "new")):
        builder.row(name, visual_path=builder.faces(f"{name}.npy", shape=(32, 32), first=first_frame))
    rows = builder.rows
    first, second = (
        Corpus(name="talks", source=TsvCorpus(kind="tsv", manifest=path), dataset="talks", shard_bytes=40_000)
        for builder.rows, path in ((rows[:2], sources / "first.tsv"), (rows[1:], sources / "second.tsv"))
        if builder.write(path.name)
    )
    packs = layout.asd_packed_shards("talks")

    def begin() -> None:
        for make in (line.make_manifest, line.make_loudness_index, line.make_packed_shards):
            require_published(make(layout, first))

    stages = [
        Operation(
            "manifest", lambda: require_published(line.make_manifest(layout, second)), layout.asd_manifest("talks")
        ),
        Operation(
            "loudness_index",
            lambda: require_published(line.make_loudness_index(layout, second)),
            layout.asd_loudness_index("talks"),
        ),
        Operation("packed_shards", lambda: require_published(line.make_packed_shards(layout, second)), packs),
    ]
    return begin, [*stages, *upkeep(layout, packs)]


def ref2va_line(layout: Layout, sources: Path, checkpoint: Path) -> tuple[Callable[[], None], list[Operation]]:
    """The same of a dataset."""
    from muvap_assets.demo.ref2va import raw_row, write_demo_datasets
    from muvap_assets.ref2va import line
    from muvap_assets.ref2va.cache import rebuild_index
    from muvap_assets.ref2va.contract import Dataset, DatasetOptions
    from muvap_assets.ref2va.encoder_spec import EncoderSpec

    importlib.import_module("muvap_assets.ref2va.h3")  # with torch, once and not in each fork
    write_demo_datasets(sources / "demo")
    person = {"type": "image", "image": "media/person.png"}
    voice = {"type": "audio", "audio": "media/voice.wav"}
    gone = raw_row("gone", "media/talk.mp4", "Someone speaks.", [person])
    kept = raw_row("kept", "media/walk.mp4", "A person walks.", [person])
    new = raw_row("new", "media/place.mp4", "A voice is heard.", [person, voice])
    options = DatasetOptions(width=64, height=32, num_frames=5)
    datasets = []
    for name, rows in (("first", (gone, kept)), ("second", (kept, new))):
        manifest = sources / "demo" / f"{name}.jsonl"
        manifest.write_text("".join(json.dumps(row) + "\n" for row in rows))
        datasets.append(Dataset(name="clips", manifest=manifest, options=options))
    first, second = datasets
    spec = EncoderSpec(checkpoint=checkpoint, device="cpu")
    index = layout.ref2va_parquet_cache_index("clips")

    def begin() -> None:
        require_published(line.make_manifest(layout, first, spec))
        require_published(line.make_encoded_latents(layout, first, 0, spec))
        require_published(line.make_parquet_cache_index(layout, first))

    stages = [
        Operation(
            "manifest",
            lambda: require_published(line.make_manifest(layout, second, spec)),
            layout.ref2va_manifest("clips"),
        ),
        Operation(
            "encoded_latents",
            lambda: require_published(line.make_encoded_latents(layout, second, 0, spec)),
            layout.ref2va_encoded_latents("clips", 0),
        ),
        Operation(
            "parquet_cache_index", lambda: require_published(line.make_parquet_cache_index(layout, second)), index
        ),
    ]
    rebuild = Operation("index rebuild", lambda: rebuild_index(index.current.resolve()))
    return begin, [*stages, rebuild, *upkeep(layout, index)]


def upkeep(layout: Layout, last: Artifact) -> list[Operation]:
    """What is done to a root whose line was made twice, the second time without the sample called ``gone``."""

    def back() -> None:
        versions = [standing.version for standing in standing_versions(last)]
        first = next(event.version for event in events(last) if event.version in versions)
        roll_back(last, first)

    return [
        Operation("rollback", back, pauses=False),
        Operation("purge", lambda: purge(layout, Takedown(samples=frozenset({"gone"}))), pauses=False),
        Operation("maintenance", lambda: maintain(layout, AT_ONCE)),
    ]


def require_published(outcome: Outcome[Any]) -> None:
    if outcome.published is None:
        raise AssertionError([finding.message() for check in outcome.blocking for finding in check.findings])


# --- steps --------------------------------------------------------------------------------------------------------------


class Steps:
    """Counts the steps of this process below ``root``, and stops it before one of them."""

    def __init__(self, root: Path, stop_at: Step | None = None) -> None:
        self.root, self.stop_at = root, stop_at
        self.met: list[Step] = []
        self.counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        sys.addaudithook(self.hook)
        for name in BY_DESCRIPTOR:
            setattr(os, name, self._telling(name, getattr(os, name)))

    def _telling(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def told(descriptor: int, *arguments: Any) -> Any:
            self.meet(name, self.below(descriptor, -1))
            return call(descriptor, *arguments)

        return told

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if isinstance(path, (str, bytes)) and flags & (os.O_WRONLY | os.O_RDWR):
                self.meet("append" if flags & os.O_APPEND else event, self.below(path, -1))
        elif event in ("os.rename", "os.link"):
            source, target, source_folder, target_folder = arguments
            if target := self.below(target, target_folder):
                self.meet(event, f"{self.below(source, source_folder)} -> {target}")
        elif event == "os.symlink":
            self.meet(event, self.below(arguments[1], arguments[2]))
        elif event == "os.mkdir" and Path(arguments[0]).is_dir():
            return  # it stands already
        elif event in NAMING:
            self.meet(event, self.below(arguments[0], -1 if event == "os.truncate" else arguments[-1]))

    def below(self, path: Any, folder: int) -> str | None:
        """The path relative to the root without its random parts; ``None`` where it lies elsewhere."""
        path = open_file(path) if isinstance(path, int) else Path(os.fsdecode(path))
        path = open_file(folder) / path if folder >= 0 else path
        return RANDOM.sub("*", path.relative_to(self.root).as_posix()) if path.is_relative_to(self.root) else None

    def meet(self, event: str, where: str | None) -> None:
        if where is None:
            return
        name = f"{event} {where}"
        with self._lock:
            self.counts[name] += 1
            step = name, self.counts[name]
            self.met.append(step)
        if step == self.stop_at:
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)  # to this very thread: it does nothing more
            time.sleep(600)


def open_file(descriptor: int) -> Path:
    """What an open file or folder is called."""
    return Path(f"/proc/self/fd/{descriptor}").readlink()


def chosen(steps: list[Step], count: int) -> dict[Step, str]:
    """``count`` steps: those a publication must be killed at where it has them, and others evenly between."""
    found: dict[Step, str] = {}
    for label, pattern in LANDMARKS.items():
        for step in steps:
            if pattern.match(step[0]):
                found[step] = label
                if label.endswith("line") and steps.index(step) + 1 < len(steps):
                    found[steps[steps.index(step) + 1]] = "after the journal's line"
                break
    others = [step for step in steps if step not in found]
    wanted = min(max(0, count - len(found)), len(others))
    found |= {others[(2 * i + 1) * len(others) // (2 * wanted)]: "" for i in range(wanted)}
    return dict(list(found.items())[:count])


# --- forks --------------------------------------------------------------------------------------------------------------


class Bench:
    """A root at one place all the time, states of it that were put aside, and forks that work on it."""

    def __init__(self, work: Path) -> None:
        self.work, self.layout = work, Layout(work / "root")

    def put_aside(self, name: str) -> None:
        shutil.rmtree(self.work / name, ignore_errors=True)
        subprocess.run(["cp", "-a", self.layout.root, self.work / name], check=True)

    def restore(self, name: str) -> None:
        shutil.rmtree(self.layout.root, ignore_errors=True)
        subprocess.run(["cp", "-a", self.work / name, self.layout.root], check=True)  # keeps hard links of one tree

    def fork(self, act: Callable[[], Any]) -> int:
        """Start a fork; what ``act`` returns is to be had from :meth:`told`. This process itself starts no thread."""
        if child := os.fork():
            return child
        try:
            (self.work / "told.json").write_text(json.dumps(act()))
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)

    def told(self, act: Callable[[], Any]) -> Any:
        """What ``act`` returns, run in a fork."""
        if os.waitstatus_to_exitcode(os.waitpid(self.fork(act), 0)[1]):
            raise SystemExit(1)
        return json.loads((self.work / "told.json").read_bytes())

    def killed_at(self, act: Callable[[], object], step: Step) -> bool:
        """Whether a fork stopped before ``step``, where it was killed."""

        def halting() -> None:
            Steps(self.layout.root, step)
            act()

        child = self.fork(halting)
        _, status = os.waitpid(child, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            return False
        os.kill(child, signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL

    def killed_within(self, act: Callable[[], object], size_bytes: int) -> bool:
        """Whether a fork was killed by the kernel when it had written ``size_bytes`` of a file."""

        def limited() -> None:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, size_bytes))
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            act()

        return os.waitstatus_to_exitcode(os.waitpid(self.fork(limited), 0)[1]) == -signal.SIGXFSZ

    def tree(self) -> dict[str, str]:
        """Every name below the root, and what it holds; times, caches and what the last run found to reuse apart."""
        root = self.layout.root
        return {path.relative_to(root).as_posix(): self._content(path) for path in sorted(root.rglob("*"))}

    def _content(self, path: Path) -> str:
        if path.is_symlink():
            return f"link to {path.readlink()}"
        if path.is_dir():
            return "folder"
        kind = path.relative_to(self.layout.root).parts[0]
        if kind == "journal":
            return " ".join(json.loads(line)["version"] for line in path.read_text().splitlines())
        return "" if kind == "cache" or path.name in ("stamps.json", REUSE_FILE) else file_sha256(path)

    def stored(self) -> dict[str, int]:
        """Which file each finished row and part is, of those that stand."""
        return {path.name: path.stat().st_ino for path in self.layout.row_store.glob("**/[!.]*.*")}

    def maintained(self) -> dict[str, str]:
        """:meth:`tree` after maintenance."""
        left = maintain(self.layout, AT_ONCE).left
        again = maintain(self.layout, AT_ONCE).removed
        return {**self.tree(), **{f"left by maintenance: {each}": "" for each in (*left, *again)}}

    def versions(self) -> dict[str, str | None]:
        """The current version of each artifact."""
        return {artifact.label: current_version(artifact) for artifact in artifacts(self.layout)}

    def broken(self) -> Iterator[str]:
        """Versions that stand and are not whole."""
        for artifact in artifacts(self.layout):
            for standing in standing_versions(artifact):
                try:
                    require_whole(artifact, standing.version)
                except MuvapError as error:
                    yield str(error)
            if artifact.current.is_symlink() and current_version(artifact) is None:
                yield f"{artifact.label}: current points at nothing"


# --- what is told ---------------------------------------------------------------------------------------------------------


@dataclass
class Ended:
    """A root before and after an operation that nothing disturbed, and after maintenance; and the operation's steps."""

    before: dict[str, Any]
    after: dict[str, Any]
    steps: list[Step]


def undisturbed(bench: Bench, operation: Operation) -> Ended:
    """Run an operation once, with its state before put aside as ``before``, and that after as ``after``."""

    def state() -> dict[str, Any]:
        return {"versions": bench.versions(), "tree": bench.tree()}

    def recorded() -> list[Step]:
        steps = Steps(bench.layout.root)
        operation.act()
        return list(steps.met)

    bench.put_aside("before")
    before = bench.told(state)
    before["maintained"] = bench.told(bench.maintained)
    bench.restore("before")
    steps = [(name, count) for name, count in bench.told(recorded)]
    bench.put_aside("after")
    after = bench.told(state)
    after["maintained"] = bench.told(bench.maintained)
    return Ended(before, after, steps)


def differences(found: dict[str, str], expected: dict[str, str], what: str) -> Iterator[str]:
    for name in sorted(found.keys() | expected.keys()):
        if found.get(name) != expected.get(name):
            yield f"{what}: {name}: {found.get(name, 'missing')}, required {expected.get(name, 'nothing')}"


def wrong_after_kill(bench: Bench, operation: Operation, ended: Ended, maintain_first: bool) -> list[str]:
    """What is not as it has to be: at once, after maintenance where that comes first, and when the operation ran again."""
    before, after = ended.before, ended.after
    wrong = list(bench.broken())
    versions = bench.versions()
    if versions not in (before["versions"], after["versions"]):
        wrong.append(f"killed: current are {versions}")
    if maintain_first:
        known = {**before["maintained"], **after["maintained"]}
        wrong += [f"maintained: {name} is left" for name in bench.maintained() if name not in known]
        wrong += [f"maintained: {each}" for each in bench.broken()]
    stood = bench.stored()
    operation.act()
    stands = bench.stored()
    wrong += [
        f"run again: {name} stood, and was made again" for name in stood if stands.get(name, stood[name]) != stood[name]
    ]
    if operation.artifact:
        place = operation.artifact.folder.relative_to(bench.layout.root).as_posix()
        version = f"{place}/{current_version(operation.artifact)}"
        expected = {name: content for name, content in after["tree"].items() if name.startswith(version)}
        wrong += [] if expected else [f"run again: {version} is current, which no undisturbed run makes"]
        found = {name: content for name, content in bench.tree().items() if name.startswith(version)}
        wrong += differences(found, expected, "run again")
    wrong += [f"run again: {each}" for each in bench.broken()]
    wrong += differences(bench.maintained(), after["maintained"], "in the end")
    return wrong


def largest_new_file(ended: Ended, folder: Path) -> int:
    """Bytes of the largest file that an operation wrote."""
    names = [name for name, content in ended.after["tree"].items() if ended.before["tree"].get(name) != content]
    files = [folder / name for name in names if (folder / name).is_file() and not (folder / name).is_symlink()]
    return max((path.stat().st_size for path in files if path.stat().st_nlink == 1), default=0)


def killed_operation(bench: Bench, operation: Operation, count: int) -> dict[str, Any]:
    """Kill one operation ``count`` times; the root is left as it was, and after a stage as the undisturbed run leaves it."""
    ended = undisturbed(bench, operation)
    if operation.artifact and ended.before["versions"] == ended.after["versions"]:
        raise AssertionError(f"{operation.name}: no other version is current after it")
    size_bytes = largest_new_file(ended, bench.work / "after") // 2 if operation.artifact else 0
    kills: list[tuple[str, Callable[[], bool]]] = [
        (f"{label}: {step[0]} ({step[1]})", lambda step=step: bench.killed_at(operation.act, step))
        for step, label in chosen(ended.steps, count).items()
    ]
    if size_bytes:
        kills.append((f"after {size_bytes} bytes of a file", lambda: bench.killed_within(operation.act, size_bytes)))
    told = []
    for number, (where, kill) in enumerate(kills):
        bench.restore("before")
        landed = kill()
        first = operation.pauses and number % 2 == 1
        wrong = bench.told(lambda first=first: wrong_after_kill(bench, operation, ended, first))
        told.append({"where": where, "landed": landed, "wrong": wrong})
    bench.restore("after" if operation.artifact else "before")
    return {"operation": operation.name, "steps": len(ended.steps), "kills": told}


def settle(folder: Path) -> None:
    """Wait until digests of the files are remembered, so that each run finds the same caches."""
    newest = max(path.stat().st_ctime for path in folder.rglob("*"))
    while time.time() - newest <= SETTLED_SEC:
        time.sleep(0.1)


def main(line: str, folder: str, checkpoint: str, count: str, *names: str) -> None:
    bench, sources = Bench(Path(folder)), Path(folder) / "sources"
    sources.mkdir()
    begin, operations = {"asd": asd_line, "ref2va": ref2va_line}[line](bench.layout, sources, Path(checkpoint))
    settle(sources)
    gc.collect()
    gc.freeze()  # forks collect what they make, and do not look through all of torch
    bench.told(begin)
    for operation in operations:
        if not names or operation.name in names:
            kills = int(count) if operation.artifact else int(count) // 3
            sys.stdout.write(json.dumps(killed_operation(bench, operation, kills)) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
