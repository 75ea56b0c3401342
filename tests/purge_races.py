"""Lets a publisher, a user who takes a clip out, and a purge of it run into one another at random, many times over.

Started as a process of its own, since each trial forks: ``python purge_races.py SOURCES SAMPLE TRIALS SEED`` prints one JSON
object, how many purges came through and were refused, and every trial in which one that came through left the sample in something
current or remembered. ``SOURCES`` holds ``with.tsv`` and ``without.tsv``.
"""

import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from muvap_assets.asd import line
from muvap_assets.asd.contract import Corpus
from muvap_assets.asd.corpora.tsv import TsvCorpus
from muvap_assets.errors import PublishError, StaleInputError
from muvap_assets.layout import Layout
from muvap_assets.storage.digests import file_sha256
from muvap_assets.takedown import Takedown, purge

STAGES = (line.make_manifest, line.make_loudness_index, line.make_packed_shards)
REFUSED = 3
_EVENTS = {
    "open",
    "os.rename",
    "os.symlink",
    "os.link",
    "os.mkdir",
    "os.remove",
    "os.listdir",
    "os.scandir",
    "fcntl.flock",
}


def delay_at_random(seed, below):
    """Let this process pause now and then where it touches a file below a folder."""
    chance, below = random.Random(seed), str(below)

    def pause(event, arguments):
        is_below = event == "fcntl.flock" or any(below in str(each) for each in arguments[:2])
        if event in _EVENTS and is_below and chance.random() < 0.05:
            time.sleep(chance.random() * 0.05)

    sys.addaudithook(pause)


def forked(work):
    """The id of a child that does ``work`` and ends with what it returns."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = work()
        finally:
            os._exit(code)
    return child


def ended(child):
    """The exit code of a child."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class Trial:
    def __init__(self, root, sample, seed):
        self.root, self.sample, self.chance = root, sample, random.Random(seed)
        self.layout = Layout(root / "data")

    def make(self, stages, seed=None):
        if seed is not None:
            delay_at_random(seed, self.root)
        source = TsvCorpus(kind="tsv", manifest=self.root / "sources" / "train.tsv")
        corpus = Corpus(name="talks", source=source, dataset="talks")
        for stage in stages:
            try:
                if stage(self.layout, corpus).published is None:
                    return 1
            except StaleInputError:
                return REFUSED
        return 0

    def take_out(self):
        new = self.root / "sources" / "new.tsv"
        shutil.copyfile(self.root / "sources" / "without.tsv", new)
        new.replace(self.root / "sources" / "train.tsv")

    def purge(self, seed=None):
        if seed is not None:
            delay_at_random(seed, self.root)
        try:
            recording = frozenset({file_sha256(self.root / "sources" / f"{self.sample}.wav")[:16]})
            purge(self.layout, Takedown(samples=frozenset({self.sample}), recordings=recording))
        except (StaleInputError, PublishError):
            return REFUSED
        return 0

    def holding(self):
        """Files of what is current or remembered that hold the sample."""
        places = [*(link.resolve() for link in self.layout.root.glob("*/*/*/current")), self.layout.cache]
        files = [path for place in places for path in place.rglob("*") if path.is_file()]
        return [str(path) for path in files if self.sample.encode() in path.read_bytes()]

    def run(self):
        """Whether the purge came through, and what holds the sample all the same."""
        publisher = forked(lambda: self.make([self.chance.choice(STAGES)], self.chance.random()))
        time.sleep(self.chance.random() * 0.1)
        self.take_out()
        while (code := ended(forked(lambda: self.make(STAGES)))) == REFUSED:
            pass  # the publisher was faster with one of them
        if code:
            raise SystemExit("what the user publishes was not published")
        if self.chance.random() < 0.3:
            ended(publisher)
            publisher = None
        code = ended(forked(lambda: self.purge(self.chance.random())))
        if publisher is not None and ended(publisher) not in (0, REFUSED):
            raise SystemExit("the publisher failed")
        return code, self.holding() if code == 0 else []


def main(sources, sample, trials, seed):
    counts, wrong = Counter(), []
    with tempfile.TemporaryDirectory() as folder:
        start = Trial(Path(folder) / "start", sample, seed)
        shutil.copytree(sources, start.root / "sources")
        shutil.copyfile(start.root / "sources" / "with.tsv", start.root / "sources" / "train.tsv")
        if ended(forked(lambda: start.make(STAGES))):
            raise SystemExit("nothing to begin with")
        for number in range(trials):
            trial = Trial(Path(folder) / "trial", sample, f"{seed} {number}")
            shutil.copytree(start.root, trial.root, symlinks=True)
            code, found = trial.run()
            counts[{0: "came through", REFUSED: "refused"}.get(code, "failed")] += 1
            wrong += [{"trial": number, "found": found}] if found else []
            shutil.rmtree(trial.root)
    sys.stdout.write(json.dumps({**counts, "wrong": wrong}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
