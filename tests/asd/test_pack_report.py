"""The figures of a pack: levels before and after normalization, shares, lengths, rates, padding, and what is unusual."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from loader_miniature import Miniature, Track

from muvap_assets.asd import line
from muvap_assets.asd.contract import Clip, Corpus, VisualKind
from muvap_assets.asd.corpora.ava import AvaCorpus
from muvap_assets.asd.packs.report import Distribution, report_pack, unusual_figures
from muvap_assets.asd.packs.writer import write_pack
from muvap_assets.asd.timeline import FrameRate
from muvap_assets.codes import Severity
from muvap_assets.layout import Layout
from muvap_assets.storage.digests import file_sha256


class Levels:
    def __init__(self, rms_dbfs, peak=None):
        self.mean, self.rms = 0.0, 10 ** (rms_dbfs / 20) if rms_dbfs is not None else 0.0
        self.peak = self.rms * 3 if peak is None else peak


def pack(tmp_path, levels, dataset="mine", speaking=(0, 1)):
    """Two clips a recording, of 25 frames at 25 fps and of 60 at 30."""
    root = tmp_path / "media"
    root.mkdir()
    clips, by_id = [], {}
    for i, name in enumerate(levels):
        np.save(root / f"{name}.npy", np.full(64_000, i, np.int16))
        recording_id = file_sha256(root / f"{name}.npy")[:16]
        by_id[recording_id] = levels[name]
        for j, (rate, frames) in enumerate((("25", 25), ("30", 60))):
            np.save(root / f"{name}{j}.npy", np.zeros((frames, 4, 4), np.uint8))
            clips.append(
                Clip(
                    row=2 * i + j,
                    dataset=dataset,
                    sample_id=f"{name}{j}",
                    audio_path=f"{name}.npy",
                    visual_path=f"{name}{j}.npy",
                    visual_kind=VisualKind.NPY,
                    source_fps=FrameRate.parse(rate),
                    labels=np.full(frames, speaking[j], np.uint8),
                    start_sec=Fraction(0),
                    audio_sample_rate=16_000,
                    recording_id=recording_id,
                    recording_samples=64_000,
                    face_height=4,
                    face_width=4,
                )
            )
    folder = tmp_path / "pack"
    folder.mkdir()
    write_pack(folder, clips, root, by_id, inputs={})
    (report,) = report_pack(folder)
    return report


def test_levels_are_normalized_to_the_target_within_gain_and_peak(tmp_path):
    levels = {
        "usual": Levels(-31),
        "faint": Levels(-60),
        "peaky": Levels(-40, peak=0.5),
        "none": Levels(None, peak=0.0),
    }
    report = pack(tmp_path, levels)
    assert (report.samples, report.recordings, report.silent_recordings) == (8, 4, 1)
    assert (report.source_dbfs.min, report.source_dbfs.p50, report.source_dbfs.max) == pytest.approx((-60, -40, -31))
    peaky = 20 * np.log10(0.99 / 0.5)
    assert (report.gain_db.min, report.gain_db.p50, report.gain_db.max) == pytest.approx((peaky, 6, 20))
    assert (report.normalized_dbfs.min, report.normalized_dbfs.max) == pytest.approx((-40, -25))
    assert report.off_target == pytest.approx(2 / 3)


def test_shares_lengths_rates_and_padding_are_of_clips(tmp_path):
    report = pack(tmp_path, {"a": Levels(-30), "b": Levels(-20)})
    assert report.speaking_share == pytest.approx(60 / 85)
    assert report.frame_rates == {"25": 2, "30": 2}
    assert (report.length_frames.min, report.length_frames.max) == (25, 60)
    assert (report.length_sec.min, report.length_sec.p50, report.length_sec.max) == pytest.approx((1, 1.5, 2))
    assert report.padded_ms == Distribution(min=0, p5=0, p50=0, p95=0, max=0)
    assert report.off_target == 0


def test_what_is_unlike_the_known_corpus_is_a_warning_each(tmp_path):
    usual = pack(tmp_path, {"a": Levels(-30)}, dataset="ava_train", speaking=(1, 0))
    assert unusual_figures(usual) == []
    odd = replace(
        usual,
        speaking_share=0.99,
        length_frames=replace(usual.length_frames, p50=900.0),
        length_sec=replace(usual.length_sec, max=40.0),
        source_fps=replace(usual.source_fps, max=100.0),
        off_target=0.5,
        silent_recordings=1,
        padded_ms=replace(usual.padded_ms, p95=400.0),
    )
    found = unusual_figures(odd)
    assert [finding.field for finding in found] == [
        *("speaking_share", "length_frames", "length_sec", "source_fps", "gain_db", "source_dbfs", "padded_ms"),
    ]
    assert all(finding.severity is Severity.WARNING for finding in found)
    assert found[0].message().startswith("ava_train: speaking_share: 99.0% of the frames; required: usually 10% to 50%")


@pytest.mark.parametrize(("dataset", "unlike"), [("ava", 0), ("wasd", 1), ("mine", 0)])
def test_each_corpus_is_held_to_its_own_figures(tmp_path, dataset, unlike):
    report = pack(tmp_path, {"a": Levels(-30)}, dataset=dataset, speaking=(1, 0))
    assert len(unusual_figures(report)) == unlike


def test_filler_labels_have_no_speaking_share(tmp_path):
    corpus = Miniature(tmp_path / "ava", [Track("a_0_1:1", "a", label_ids=[1] * 25)], split="test").write()
    source = AvaCorpus(kind="ava", root=corpus.root, split="test")
    layout, corpus = Layout(tmp_path / "data"), Corpus(name="c", source=source, dataset="ava")
    for make in (line.make_manifest, line.make_loudness_index, line.make_packed_shards):
        assert make(layout, corpus).published
    (report,) = report_pack(layout.asd_packed_shards("c").current)
    assert report.speaking_share is report.speaking is None
    assert report.padded_ms.p50 == 40
