"""Real bad inputs, one function a kind, and the findings they give: where the messages of the troubleshooting page come from."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import soundfile
from corpus_builder import CorpusBuilder
from loader_miniature import Miniature as LoaderMiniature
from loader_miniature import Track
from media_makers import raw_row, target, tone, write_rows, write_video
from msdwild_miniature import Miniature as MsdwildMiniature
from PIL import Image
from published_rows import LONG, clean_record, finished, published, sft_record

from muvap_assets.asd import line
from muvap_assets.asd.contract import Corpus
from muvap_assets.asd.corpora.ava import AvaCorpus
from muvap_assets.asd.corpora.msdwild import MsdwildCorpus
from muvap_assets.asd.corpora.tsv import TsvCorpus
from muvap_assets.asd.packs.layout import FACES_FILE, shard_name
from muvap_assets.asd.packs.verify import verify_pack
from muvap_assets.asd.policy import OnViolation, Policy
from muvap_assets.errors import ValidationError
from muvap_assets.findings import Finding
from muvap_assets.layout import Layout
from muvap_assets.publish import not_run
from muvap_assets.ref2va.contract import DatasetOptions, Format
from muvap_assets.ref2va.manifest import validate_manifest
from muvap_assets.ref2va.media_facts import MediaFacts
from muvap_assets.ref2va.publication import PublicationOptions, assemble
from muvap_assets.ref2va.publication_checks import verify_dataset
from muvap_assets.ref2va.records import write_shard
from muvap_assets.ref2va.verify import verify_row_file

Findings = Iterable[Finding]
KINDS: list[Callable[[Path], Findings]] = []


def kind(make: Callable[[Path], Findings]) -> Callable[[Path], Findings]:
    """Register a kind of bad input."""
    KINDS.append(make)
    return make


def findings_of(make: Callable[[Path], Findings], folder: Path) -> list[Finding]:
    """The findings of one kind, whose input is written into ``folder``.

    Paths of this machine become ``/data``, and versions, which follow the libraries' bytes, ``<version>``.
    """
    text = [
        json.dumps({**finding.to_dict(), "path": finding.path})
        .replace(str(folder), "/data")
        .replace(f"{folder.parent}/", "/")
        for finding in make(folder)
    ]
    text = [re.sub(r"\b[0-9a-f]{16}\b", "<version>", each) for each in text]
    return [Finding.from_dict(json.loads(each)) for each in text]


# --- the canonical TSV and its media -----------------------------------------------------------------------------------------


def judged(source, **policy: object) -> list[Finding]:
    corpus = Corpus(name="talks", source=source, dataset="talks", policy=Policy(**policy))
    return list(line.validate_corpus(corpus).findings)


def judged_tsv(corpus: CorpusBuilder) -> list[Finding]:
    return judged(TsvCorpus(kind="tsv", manifest=corpus.write()))


@kind
def rows_of_a_tsv(folder: Path) -> Findings:
    corpus = CorpusBuilder(folder)
    corpus.row("twice")
    corpus.row("twice")
    corpus.row(" ")
    corpus.row("no_path", audio_path=" ")
    corpus.row("no_rate", source_fps="fast")
    corpus.row("bad_start", start_sec="-1")
    corpus.row("three_labels", labels="[0, 1, 2]")
    corpus.row("float_labels", labels=str([0.0, 1.0] * 12 + [0.0]))
    corpus.row("odd_kind", visual_kind="mp4")
    corpus.row("no_boxes", visual_kind="video_boxes", boxes_path="boxes.csv", face_id="left", first_frame="0")
    corpus.row("odd_array_rate", audio_sample_rate="fast")
    corpus.row("odd_known", labels_known="maybe")
    corpus.row("remark", notes="nice one")
    corpus.row("Remark")
    return judged_tsv(corpus)


@kind
def faces_of_a_tsv(folder: Path) -> Findings:
    corpus = CorpusBuilder(folder)
    corpus.row("good")
    corpus.row("also_good")
    corpus.row("gone", visual_path="gone.npy")
    (folder / "cut.npy").write_bytes((folder / corpus.faces("whole.npy")).read_bytes()[:-10])
    corpus.row("cut", visual_path="cut.npy")
    np.save(folder / "float.npy", np.zeros((25, 8, 8), np.float32))
    corpus.row("floats", visual_path="float.npy")
    np.save(folder / "colour.npy", np.zeros((25, 8, 8, 3), np.uint8))
    corpus.row("colour", visual_path="colour.npy")
    np.save(folder / "none.npy", np.zeros((0, 8, 8), np.uint8))
    corpus.row("no_frames", visual_path="none.npy")
    corpus.row("larger", visual_path=corpus.faces("larger.npy", shape=(16, 16)))
    corpus.row("one_short", visual_path=corpus.faces("short.npy", frames=24))
    for name, crops in (("named", ["0.04.jpg", "first.jpg"]), ("doubled", ["1.0.jpg", "1.00.jpg"])):
        (folder / name).mkdir()
        for crop in crops:
            cv2.imwrite(str(folder / name / crop), np.zeros((8, 8), np.uint8))
        corpus.row(name, visual_path=name, visual_kind="jpeg_directory", labels="[0, 1]")
    (folder / "hollow").mkdir()
    (folder / "hollow" / "1.jpg").touch()
    corpus.row("hollow", visual_path="hollow", visual_kind="jpeg_directory", labels="[0]")
    return judged_tsv(corpus)


@kind
def audio_of_a_tsv(folder: Path) -> Findings:
    corpus = CorpusBuilder(folder)
    corpus.row("gone", audio_path="gone.wav")
    (folder / "text.wav").write_text("this is no sound")
    corpus.row("text", audio_path="text.wav")
    soundfile.write(folder / "lossy.ogg", np.zeros(16_000), 16_000, format="OGG", subtype="VORBIS")
    corpus.row("lossy", audio_path="lossy.ogg")
    soundfile.write(folder / "cut.flac", np.random.default_rng(0).normal(0, 0.1, 16_000), 16_000)
    (folder / "cut.flac").write_bytes((folder / "cut.flac").read_bytes()[:9_000])
    corpus.row("cut", audio_path="cut.flac")
    (folder / "empty.wav").touch()
    corpus.row("empty", audio_path="empty.wav")
    sound = np.zeros(16_000, np.float32)
    sound[:3] = np.nan
    corpus.row("nan", audio_path=corpus.wav("nan.wav", sound, subtype="FLOAT"))
    cast = np.full(16_000, 9_830, np.float32)
    corpus.row("cast", audio_path=corpus.wav("cast.wav", cast, subtype="FLOAT"))
    corpus.row("a_bit_short", audio_path=corpus.wav("bit.wav", 15_000))
    corpus.row("far_too_short", audio_path=corpus.wav("short.wav", 8_000))
    corpus.row("beyond", start_sec="9")
    corpus.row("whole_recording", audio_path=corpus.wav("whole.wav", 160_000))
    voice = np.random.default_rng(1).normal(0, 0.1, 16_000)
    corpus.row("opposite", audio_path=corpus.wav("opposite.wav", np.stack([voice, -0.97 * voice], 1), subtype="FLOAT"))
    (folder / "promising.wav").write_bytes((folder / corpus.wav("promising.wav")).read_bytes()[:-200])
    corpus.row("promising", audio_path="promising.wav")
    copied = bytearray((folder / corpus.wav("copied.flac", format="FLAC")).read_bytes())
    copied[26:42] = bytes(range(16))  # the MD5 of STREAMINFO
    (folder / "copied.flac").write_bytes(copied)
    corpus.row("copied", audio_path="copied.flac")
    corpus.row("second_stream", audio_stream="1")
    corpus.row("second_channel", audio_channel="1")
    return judged_tsv(corpus)


@kind
def headers_of_a_tsv(folder: Path) -> Findings:
    for name, text in {
        "missing.tsv": b"sample_id\taudio_path\tvisual_path\tsource_fps\n",
        "twice.tsv": b"sample_id\tsample_id\taudio_path\tvisual_path\tsource_fps\tlabels\n",
        "empty.tsv": b"sample_id\taudio_path\tvisual_path\tsource_fps\tlabels\n",
        "latin.tsv": b"sample_id\taudio_path\tvisual_path\tsource_fps\tlabels\ncaf\xe9\ta.wav\ta.npy\t25\t[0]\n",
        "ragged.tsv": b"sample_id\taudio_path\tvisual_path\tsource_fps\tlabels\na\ta.wav\n",
    }.items():
        (folder / name).write_bytes(text)
        yield from judged(TsvCorpus(kind="tsv", manifest=folder / name))
    yield from judged(TsvCorpus(kind="tsv", manifest=folder / "gone.tsv"))


@kind
def shares_of_a_corpus(folder: Path) -> Findings:
    corpus, layout = CorpusBuilder(folder), Layout(folder / "data")
    corpus.row("good", labels=str([1] * 25), audio_path=corpus.wav("quiet.wav", np.zeros(16_000)))
    corpus.row("bad", source_fps="fast")
    source = TsvCorpus(kind="tsv", manifest=corpus.write())
    strict = Policy(on_violation=OnViolation.QUARANTINE)
    lenient = Policy(on_violation=OnViolation.QUARANTINE, max_rejected_share=0.9)
    for policy, make in (
        (strict, line.make_manifest),
        (lenient, line.make_manifest),
        (lenient, line.make_loudness_index),
    ):
        outcome = make(layout, Corpus(name="talks", source=source, dataset="talks", policy=policy))
        yield from (finding for check in outcome.checks for finding in check.findings)


# --- corpora as they are shipped ---------------------------------------------------------------------------------------------

ENTITY = "HV0H6oc4Kvs_0960_1020:1"


def ava(folder: Path, *tracks: Track) -> tuple[LoaderMiniature, Callable[..., list[Finding]]]:
    miniature = LoaderMiniature(folder, list(tracks) or [Track(ENTITY, "HV0H6oc4Kvs")]).write()
    return miniature, lambda **options: judged(AvaCorpus(kind="ava", root=folder, split="train", **options))


@kind
def crops_of_ava(folder: Path) -> Findings:
    names = ("missing", "extra", "shifted", "slow")
    tracks = [Track(f"video_{i}_0000_0060:{name}", f"video_{i}") for i, name in enumerate(names)]
    miniature, judge = ava(folder, *tracks)
    crops = {name: sorted(miniature.crops(track).iterdir()) for name, track in zip(names, tracks, strict=True)}
    crops["missing"][10].unlink()
    (crops["extra"][0].parent / "902.01.jpg").write_bytes(crops["extra"][0].read_bytes())
    crops["shifted"][24].rename(crops["shifted"][24].with_name("903.96.jpg"))
    miniature.loader.write_text(miniature.loader.read_text().replace("slow\t25\t25", "slow\t25\t24"))
    yield from judge()


@kind
def texts_of_ava(folder: Path) -> Findings:
    miniature, judge = ava(folder)
    miniature.write_original()
    annotations = miniature.original.read_text()
    yield from judge(loader=miniature.original)
    yield from judge(original=folder / "gone.csv")
    miniature.original.write_text("a,b,c\n1,2,3\n")
    yield from judge()
    for before, after in (
        ("NOT_SPEAKING", "MUMBLING"),
        ("NOT_SPEAKING", "SPEAKING_AUDIBLE"),
        ("902.00", "noon"),
        ("0.1,0.2,0.4,0.6", "0.4,0.2,0.1,0.6"),
        ("0.1,0.2,0.4,0.6", "-0.1,0.2,0.4,0.6"),
    ):
        miniature.original.write_text(annotations.replace(before, after, 1))
        yield from judge()
    miniature.original.unlink()
    yield from judge(audio_kind="recordings", audio=folder / "clips_audios" / "train")


@kind
def names_of_ava(folder: Path) -> Findings:
    one = Track(ENTITY, "HV0H6oc4Kvs")
    miniature, judge = ava(folder, one)
    alias = miniature.crops(one).with_name(ENTITY.replace(":", "_"))
    alias.mkdir()
    yield from judge()
    alias.rmdir()
    line_of = miniature.loader.read_text()
    miniature.loader.write_text(line_of + line_of.replace(":1", "_1"))
    miniature.crops(one).rename(alias)
    yield from judge()
    miniature.loader.write_text(line_of.replace(ENTITY, "somebody"))
    yield from judge()


@kind
def times_of_ava(folder: Path) -> Findings:
    miniature, judge = ava(folder)
    crops = sorted(miniature.crops(miniature.tracks[0]).iterdir())
    crops[-1].rename(crops[-1].with_name("902.01.jpg"))
    yield from judge()
    miniature.write_original()
    yield from judge()


@kind
def splits_that_share(folder: Path) -> Findings:
    layout = Layout(folder / "data")

    def split(name: str, *rows: tuple[str, int, int, str]) -> TsvCorpus:
        """Rows of an id, the seeds of its sound and of its faces, and its video."""
        corpus = CorpusBuilder(folder)
        for sample_id, sound, faces, video in rows:
            picture = np.random.default_rng(faces).integers(0, 256, (25, 8, 8), dtype=np.uint8)
            np.save(folder / f"{faces}.npy", picture)
            audio = corpus.wav(f"{sound}.wav", 16_000 + sound)
            corpus.row(sample_id, audio_path=audio, visual_path=f"{faces}.npy", video_id=video)
        return TsvCorpus(kind="tsv", manifest=corpus.write(name))

    train = split("train.tsv", ("a", 1, 1, "talk_7"), ("b", 2, 2, ""), ("c", 3, 3, ""))
    val = split("val.tsv", ("d", 4, 4, "talk_7"), ("e", 2, 5, ""), ("f", 6, 3, ""))
    for name, source, siblings in (("train", train, ()), ("val", val, ("train",))):
        made = Corpus(name=name, source=source, dataset="talks", siblings=siblings)
        outcome = line.make_manifest(layout, made)
    yield from (finding for check in outcome.checks for finding in check.findings)


@kind
def boxes_and_turns_of_msdwild(folder: Path) -> Findings:
    mini = MsdwildMiniature(folder)
    corpus = MsdwildCorpus.model_validate({"kind": "msdwild", "root": folder, "window_sec": 1, "overlap_sec": 0})
    yield from judged(corpus)
    for name in ("good", "doubled", "thin", "outside", "nobody", "brief", "silent", "-secret"):
        mini.video(name, 25 if name != "brief" else 10, faces=(0,))
        mini.boxes(name, 25 if name != "brief" else 10, faces=(0,))
        if name != "silent":
            mini.speaks(name, "5" if name == "nobody" else "0", 0, 1)
    mini.boxes("doubled", 25, faces=(0,), extra=["0,face,0,1,1,9,9,0"])
    mini.boxes("thin", 25, faces=(0,), missing={(0, 3)}, extra=["3,face,0,5,5,5.2,50,0"])
    mini.boxes("outside", 25, faces=(0,), missing={(0, 3)}, extra=["3,face,0,500,500,550,550,0"])
    mini.write()
    yield from judged(corpus)
    mini.turns.append("SPEAKER good 1 soon 1 <NA> <NA> 0 <NA> <NA>")
    mini.write()
    yield from judged(corpus)


# --- packs -------------------------------------------------------------------------------------------------------------------


@kind
def a_damaged_pack(folder: Path) -> Findings:
    corpus, layout = CorpusBuilder(folder), Layout(folder / "data")
    corpus.row("a")
    made = Corpus(name="talks", source=TsvCorpus(kind="tsv", manifest=corpus.write()), dataset="talks")
    for make in (line.make_manifest, line.make_loudness_index, line.make_packed_shards):
        make(layout, made)
    pack = layout.asd_packed_shards("talks").current.resolve()
    faces = pack / shard_name(0) / FACES_FILE
    content = bytearray(faces.read_bytes())
    content[-1] ^= 1
    faces.write_bytes(content)
    yield from (finding for check in verify_pack(pack) for finding in check.findings)
    faces.write_bytes(content[:-1])
    yield from (finding for check in verify_pack(pack) for finding in check.findings)
    yield from not_run("shapes", "it returned no outcome").findings


# --- ref2va ------------------------------------------------------------------------------------------------------------------


class OneTokenACharacter:
    """A planner with a plain rule, which refuses what the real one refuses."""

    def plan_tokens(self, caption, references):
        from muvap_assets.ref2va.contract import TokenPlan

        return TokenPlan(len(caption), tuple(10 for _ in references))


@kind
def rows_of_a_raw_manifest(folder: Path) -> Findings:
    target(folder / "target.mov")
    Image.new("RGB", (64, 32), "navy").save(folder / "picture.png")
    voice = {"type": "audio", "audio": "voice.wav"}
    soundfile.write(folder / "voice.wav", tone(16_000, rate=16_000).T, 16_000)
    picture = {"type": "image", "image": "picture.png"}
    rows = [
        raw_row("already_encoded", schema_version="minimax_h3_ref2va_packed_v1"),
        raw_row("odd_key", captoin="A lamp."),
        raw_row("no_caption", caption=...),
        raw_row("number", caption=7),
        raw_row("outside", target={"video": "../target.mov"}),
        raw_row("gone", target={"video": "gone.mov"}),
        raw_row("off_lattice", target_geometry={"width": 64, "height": 64, "num_frames": 130}),
        raw_row("crowd", references=[picture] * 10),
        raw_row("only_sound", references=[voice]),
        raw_row("wordy", caption="A lamp. " * 20),
    ]
    path = write_rows(folder / "train.jsonl", rows)
    twice = json.dumps(raw_row("twice")).replace('"caption"', '"caption": "A lamp.", "caption"')
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes() + b"\n" + twice.encode() + b"\n")
    options = DatasetOptions(width=64, height=64, num_frames=22, max_presentation_tokens=100)
    yield from validate_manifest(path, options, facts=MediaFacts(), planner=OneTokenACharacter()).findings
    path = write_rows(folder / "whole.jsonl", [raw_row(target_geometry={"width": 64, "height": 64, "num_frames": 22})])
    yield from validate_manifest(path, DatasetOptions(format=Format.SFT), facts=MediaFacts()).findings
    (folder / "broken.jsonl").write_text("{\n")
    yield from validate_manifest(folder / "broken.jsonl", options, facts=MediaFacts()).findings


@kind
def media_of_a_raw_manifest(folder: Path) -> Findings:
    target(folder / "target.mov")
    target(folder / "short.mov", 20, sound=tone(32_000))
    target(folder / "quiet.mov", sound=np.zeros((2, 40_000), np.float32))
    target(folder / "late.mov", sound_start=1)
    target(folder / "squeezed.mov", aspect=2)
    target(folder / "curt.mov", sound=tone(8_000))
    target(folder / "wide.mov", size=(640, 32))
    target(folder / "bright.mov", colour=(16, 9))
    target(folder / "fields.mov", options={"x264-params": "tff=1"})
    write_video(folder / "mute.mov", frames=22)
    write_video(folder / "brief.mov", frames=12)
    write_video(folder / "clip.mov", frames=30)
    (folder / "text.mov").write_text("this is no video")
    (folder / "text.png").write_text("this is no picture")
    Image.new("RGB", (64, 32), "navy").save(folder / "picture.png")
    Image.new("RGB", (640, 32), "navy").save(folder / "banner.png")
    frames = [Image.new("RGB", (64, 32), colour) for colour in ("navy", "gold")]
    frames[0].save(folder / "moving.gif", save_all=True, append_images=frames[1:])
    names = ("short", "quiet", "late", "squeezed", "curt", "mute", "text")
    rows = [raw_row(name, target={"video": f"{name}.mov"}) for name in names]
    rows += [
        raw_row(f"{name}_reference", references=[{"type": "video", "video": f"{name}.mov"}])
        for name in ("brief", "wide")
    ]
    rows += [
        raw_row(name, references=[{"type": "image", "image": f"{file}"}])
        for name, file in (("text_picture", "text.png"), ("banner", "banner.png"), ("moving", "moving.gif"))
    ]
    rows.append(raw_row("other_rate", references=[{"type": "video", "video": "clip.mov", "fps": 12}]))
    rows.append(raw_row("alone", target_geometry={"width": 128, "height": 64, "num_frames": 22}))
    rows += [raw_row(name, target={"video": f"{name}.mov"}) for name in ("bright", "fields")]
    path = write_rows(folder / "train.jsonl", rows)
    options = DatasetOptions(width=64, height=64, num_frames=22)
    return validate_manifest(path, options, facts=MediaFacts()).findings


# --- published datasets ------------------------------------------------------------------------------------------------------


def looked_at(root: Path, **options: object) -> list[Finding]:
    return [finding for check in verify_dataset(root, **options) for finding in check.findings]


def own(path: Path) -> Path:
    """Give a shard bytes of its own: those of the row store are linked to it."""
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content)
    return path


@kind
def damaged_datasets(folder: Path) -> Findings:
    def fresh(name: str) -> Path:
        return published(folder / name, clean_record("a"), clean_record("b"), clean_record("long", LONG))

    root = fresh("missing")
    (root / "bucket=32x32-5f/data_00000001.parquet").unlink()
    yield from looked_at(root)
    root = fresh("stray")
    (root / "extra.parquet").write_bytes(b"")
    (root / "bucket=32x32-5f/data_00000002.parquet").symlink_to("/tmp/elsewhere.parquet")
    yield from looked_at(root)
    root = fresh("unreadable")
    shard = own(root / "bucket=32x32-5f/data_00000000.parquet")
    shard.write_bytes(shard.read_bytes()[:-9])
    yield from looked_at(root)
    root = fresh("swapped")
    own(root / "bucket=32x32-5f/data_00000000.parquet").write_bytes(
        (root / "bucket=32x32-22f/data_00000000.parquet").read_bytes()
    )
    yield from looked_at(root)
    root = fresh("moved")
    root.rename(folder / "elsewhere")
    yield from looked_at(folder / "elsewhere")
    root = fresh("without_index")
    (root / "map_style_cache/file_info.pkl").unlink()
    yield from looked_at(root)
    root = fresh("planted")
    (root / "map_style_cache/file_info.pkl").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    yield from looked_at(root)
    rows = finished(folder / "store", clean_record("a"), sft_record(clean_record("s")))
    rows.append(type(rows[0])(sample_id="never", path=None, row=3, reason="out of memory"))
    rows.extend(finished(folder / "store", clean_record("cut")))
    rows[-1].path.write_bytes(rows[-1].path.read_bytes()[:-9])
    short = PublicationOptions(format=Format.PACKED, max_presentation_tokens=5)
    for chosen, options, place in ((rows, short, "fine"), (rows[:1], PublicationOptions(format=Format.PACKED), "a,b")):
        (folder / place).mkdir()
        try:
            assemble(folder / place, chosen, options, place=lambda version, place=place: folder / place)
        except ValidationError as error:
            yield from error.findings


@kind
def damaged_rows(folder: Path) -> Findings:
    record = clean_record("a")
    poisoned = record.vae_latent.copy()
    poisoned[0, 0, 0, 0] = np.nan
    for change in (
        {"vae_latent": poisoned},
        {"audio_latent": record.audio_latent[..., :-1]},
        {"visual_rows": record.visual_rows[:-1]},
        {"text_token_tags": record.text_token_tags + 5},
    ):
        path = folder / f"{next(iter(change))}.row"
        write_shard(path, [replace(record, **change)])
        yield from verify_row_file(path)
    (folder / "other.row").write_bytes(b"this is no row")
    yield from verify_row_file(folder / "other.row")
