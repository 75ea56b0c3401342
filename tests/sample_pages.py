"""Corpora and datasets whose pages are looked at: face k is grey level k, and texts try to be markup."""

import io
import json
from fractions import Fraction
from html.parser import HTMLParser
from math import floor
from urllib.request import urlopen

import numpy as np
from click.testing import CliRunner

from muvap_assets.cli.main import main

HOSTILE = "</script><img src=x onerror='window.ran=1'><script>window.ran=1</script>&amp;\u202e"
TRACKS = {"third": ("30000/1001", 61), "slow": ("12.5", 20), "same": ("25", 30), "short": ("100", 3)}


def muvap(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def content(uri):
    """What a data URI holds; nothing is opened."""
    with urlopen(uri) as stream:
        return io.BytesIO(stream.read())


def labels_of(frames):
    return [j // 4 % 2 for j in range(frames)]


def write_pack(corpus):
    """A pack of TRACKS by the whole line; returns its folder."""
    for name, (fps, frames) in TRACKS.items():
        samples = floor(Fraction(frames) / Fraction(fps) * 16_000)
        wave = np.random.default_rng(frames).normal(0, 0.02, samples)
        corpus.row(
            HOSTILE if name == "same" else name,
            audio_path=corpus.wav(f"{name}.wav", wave),
            visual_path=corpus.faces(f"{name}.npy", frames),
            source_fps=fps,
            labels=labels_of(frames),
        )
    done = muvap("pack", corpus.write(), "-o", corpus.root / "out")
    assert done.exit_code == 0, done.output
    return corpus.root / "out" / "asd" / "packed_shards" / "train" / "current"


class Parsed(HTMLParser):
    """What a page is to a parser: its elements, its text and the content of its script and style."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.tags, self.attributes, self.texts, self.raw = [], [], [], {"script": [], "style": []}
        self._inside = None
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attrs]
        if tag in self.raw:
            self._inside = tag
            self.raw[tag].append("")

    def handle_endtag(self, tag):
        self._inside = None if tag == self._inside else self._inside

    def handle_data(self, data):
        if self._inside:
            self.raw[self._inside][-1] += data
        else:
            self.texts.append(data)

    @property
    def data(self):
        """The JSON the script works on."""
        return json.loads(self.raw["script"][0])
