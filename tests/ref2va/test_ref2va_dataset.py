"""What a trainer gets: the stored numbers, the references noised as the SFT format has them, and refusals instead of guesses."""

import json
import pickle
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from encoder_rows import FakeEncoder, audio, image, row, video
from published_rows import (
    LONG,
    REFERENCES,
    SMALL,
    WIDE,
    clean_record,
    dataset_artifact,
    published,
    rows_of_report,
    sft_record,
)
from torch.utils.data import DataLoader

from muvap_assets.errors import ConfigError, FormatError, ValidationError
from muvap_assets.ref2va.cache import rebuild_index
from muvap_assets.ref2va.capacities import Capacities
from muvap_assets.ref2va.contract import Format
from muvap_assets.ref2va.dataset import DatasetSettings, PackedRef2VADataset, SFTRef2VADataset, collate
from muvap_assets.ref2va.encode import encode_rows
from muvap_assets.ref2va.publication import PublicationOptions, publish_dataset
from muvap_assets.ref2va.records import SCHEMAS, tensor_cells, to_row, write_shard
from muvap_assets.ref2va.row_store import RowStore
from muvap_assets.ref2va.sampler import BucketBatchSampler, Schedule, global_order

FIRST = "bucket=32x32-5f/data_00000000.parquet"


def anchors(clean, seed):
    """The noised rows by the facts, one number at a time: draws in latent shape, 2x2 patches, time 0.999 in float32."""
    generator = torch.Generator().manual_seed(seed)
    time = np.float32(0.999)
    rows, place = np.empty_like(clean), 0
    for reference in REFERENCES:
        frames, height, width = reference.num_latent_frames, reference.latent_height, reference.latent_width
        if not frames:
            continue
        noise = torch.randn(1, 24, frames, height, width, generator=generator).numpy()[0]
        for frame in range(frames):
            for y in range(0, height, 2):
                for x in range(0, width, 2):
                    for channel in range(24):
                        for ph in range(2):
                            for pw in range(2):
                                column = channel * 4 + ph * 2 + pw
                                drawn = noise[channel, frame, y + ph, x + pw]
                                value = time * clean[place, column]
                                rows[place, column] = value + (np.float32(1) - time) * drawn
                    place += 1
    assert place == len(clean)
    return rows


# --- what comes out ----------------------------------------------------------------------------------------------------


def test_a_document_is_what_was_encoded(tmp_path):
    record = clean_record("a", LONG)
    (document,) = PackedRef2VADataset(published(tmp_path, record))
    for name in ("vae_latent", "audio_latent", "text_embedding", "text_token_tags"):
        assert np.array_equal(getattr(document, name).numpy(), getattr(record, name)), name
    assert np.array_equal(document.ref_audio_anchor.numpy(), record.audio_rows)
    assert (document.id, document.caption, document.references) == ("a", "caption of a", REFERENCES)
    assert (document.num_frames, document.joint_length, document.capacity) == (22, 104, None)
    assert document.text_token_tags.dtype == torch.int64
    assert document.vae_latent.is_contiguous()


def test_noised_references_equal_the_sft_anchors_byte_for_byte(tmp_path):
    records = [clean_record(name, geometry) for name, geometry in (("a", SMALL), ("b", WIDE), ("c", LONG))]
    packed = PackedRef2VADataset(published(tmp_path / "packed", *records))
    stored = SFTRef2VADataset(published(tmp_path / "sft", *map(sft_record, records)))
    for one, other in zip(packed, stored, strict=True):
        assert one.id == other.id
        assert one.ref_visual_anchor.numpy().tobytes() == other.ref_visual_anchor.numpy().tobytes()
        clean = next(record for record in records if record.id == one.id).visual_rows
        assert one.ref_visual_anchor.numpy().tobytes() == anchors(clean, 42).tobytes()


def test_the_same_row_encoded_in_both_formats_trains_on_the_same_bytes(tmp_path):
    documents = {}
    for format, reader in ((Format.PACKED, PackedRef2VADataset), (Format.SFT, SFTRef2VADataset)):
        inputs = [row("a", image(1), audio(2), video(3, sound=1600), format=format)]
        report = encode_rows(inputs, FakeEncoder(), RowStore(tmp_path / "store"))
        options = PublicationOptions(format=format)
        outcome = publish_dataset(dataset_artifact(tmp_path, str(format)), rows_of_report(inputs, report), options)
        (documents[format],) = reader(outcome.published.path)
    packed, sft = documents[Format.PACKED], documents[Format.SFT]
    for name in ("ref_visual_anchor", "ref_audio_anchor", "text_embedding", "vae_latent"):
        assert getattr(packed, name).numpy().tobytes() == getattr(sft, name).numpy().tobytes(), name


def test_noise_is_drawn_under_the_rows_own_seed_and_every_time_the_same(tmp_path):
    record = replace(clean_record("a"), reference_noise_seed=7)
    dataset = PackedRef2VADataset(published(tmp_path, record))
    torch.manual_seed(1)
    first = dataset[0].ref_visual_anchor
    torch.manual_seed(2)
    assert torch.equal(first, dataset[0].ref_visual_anchor)
    assert first.numpy().tobytes() == anchors(record.visual_rows, 7).tobytes()
    assert first.numpy().tobytes() != anchors(record.visual_rows, 42).tobytes()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_tensor_is_read_as_its_stored_dtype(tmp_path, dtype):
    folder, record = published(tmp_path, clean_record("a")), clean_record("a")
    metadata = {
        name: value for name, value in pq.read_metadata(folder / FIRST).metadata.items() if name != b"ARROW:schema"
    }
    cells = {**to_row(record), **tensor_cells("vae_latent", record.vae_latent, dtype)}
    (folder / FIRST).unlink()
    pq.write_table(pa.Table.from_pylist([cells], schema=SCHEMAS[record.format].with_metadata(metadata)), folder / FIRST)
    rebuild_index(folder)
    (document,) = PackedRef2VADataset(folder)
    expected = torch.from_numpy(record.vae_latent).to(getattr(torch, dtype)).float()
    assert torch.equal(document.vae_latent, expected)


def test_the_chosen_capacity_is_named_and_nothing_is_padded(tmp_path):
    folder = published(tmp_path, clean_record("a"), clean_record("b", tokens=300))
    dataset = PackedRef2VADataset(folder, DatasetSettings(capacities=Capacities((256, 512, 1024))))
    assert [(d.joint_length, d.capacity) for d in dataset] == [(41, 256), (330, 512)]
    assert len(dataset[1].text_embedding) == 300


# --- cropping ----------------------------------------------------------------------------------------------------------


def test_a_crop_cuts_targets_to_the_length_and_leaves_references_whole(tmp_path):
    record = clean_record("a", LONG)
    folder = published(tmp_path, record, clean_record("b"))
    cropped = PackedRef2VADataset(folder, DatasetSettings(num_frames=5, capacities=Capacities((256,))))
    document = cropped[0]
    assert np.array_equal(document.vae_latent.numpy(), record.vae_latent[:, :2])
    assert np.array_equal(document.audio_latent.numpy(), record.audio_latent[:, :, :8])
    assert np.array_equal(document.ref_visual_anchor.numpy(), anchors(record.visual_rows, 42))
    assert (document.num_frames, document.joint_length) == (5, 11 + 4 + 8 + 16 + 2)
    assert PackedRef2VADataset(folder)[0].vae_latent.shape == (24, 7, 2, 2)


def test_a_crop_longer_than_a_row_names_the_row(tmp_path):
    folder = published(tmp_path, clean_record("long", LONG), clean_record("short"))
    with pytest.raises(
        ValidationError, match=r"\(short\): 5 frames; required: the 22 of `num_frames` or `num_latent_t`"
    ) as error:
        PackedRef2VADataset(folder, DatasetSettings(num_frames=22))
    assert len(error.value.findings) == 1


@pytest.mark.parametrize(("latents", "frames"), [(2, 5), (7, 22)])
def test_a_crop_in_latent_frames_is_the_crop_in_frames(tmp_path, latents, frames):
    folder = published(tmp_path, clean_record("a", LONG))
    settings = [DatasetSettings(num_latent_t=latents), DatasetSettings(num_latent_t=latents, num_frames=frames)]
    for document in (PackedRef2VADataset(folder, each)[0] for each in settings):
        assert document.vae_latent.shape[1] == latents
        assert document.audio_latent.shape[2] == round(frames / 24 * 40)
        assert document.num_frames == frames


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ({"num_latent_t": 20}, r"num_latent_t: found 20, required is 5 \* n \+ 2 .*nearest: 17 or 22"),
        ({"num_latent_t": 0}, "num_latent_t: found 0, required .*nearest: 2"),
        (
            {"num_latent_t": 37, "num_frames": 141},
            "found 37 and 141, required is one length: 37 latent frames are 124 frames",
        ),
    ],
)
def test_latent_frames_off_the_lattice_or_of_another_length_are_refused(lengths, message):
    with pytest.raises(ConfigError, match=message):
        DatasetSettings(**lengths)


@pytest.mark.parametrize("frames", [0, 4, 6, 130])
def test_a_crop_off_the_lattice_is_refused(frames):
    with pytest.raises(ConfigError, match=r"required is 17 \* n \+ 5"):
        DatasetSettings(num_frames=frames)


# --- refusals ----------------------------------------------------------------------------------------------------------


def test_each_class_refuses_the_others_schema(tmp_path):  # B35
    packed = published(tmp_path / "packed", clean_record("a"))
    sft = published(tmp_path / "sft", sft_record(clean_record("a")))
    with pytest.raises(FormatError, match="Open it with PackedRef2VADataset"):
        SFTRef2VADataset(packed)
    with pytest.raises(FormatError, match="Open it with SFTRef2VADataset"):
        PackedRef2VADataset(sft)


def test_a_shard_swapped_for_the_other_schemas_after_opening_is_refused_when_read(tmp_path):
    folder = published(tmp_path, clean_record("a"))
    dataset = PackedRef2VADataset(folder)
    (folder / FIRST).unlink()
    write_shard(folder / FIRST, [sft_record(clean_record("a"))])
    with pytest.raises(
        FormatError, match="schema minimax_h3_ref2va_precomputed_v1; required: minimax_h3_ref2va_packed_v1"
    ):
        dataset[0]


@pytest.mark.parametrize(
    ("other", "message"), [(clean_record("a", WIDE), "shape"), (clean_record("x"), "id x; required: a")]
)
def test_a_shape_that_is_not_its_buckets_is_refused_when_read(tmp_path, other, message):
    folder = published(tmp_path, clean_record("a"))
    dataset = PackedRef2VADataset(folder)
    (folder / FIRST).unlink()
    write_shard(folder / FIRST, [other])
    with pytest.raises(FormatError, match=message):
        dataset[0]


def test_over_long_presentations_are_refused_all_at_once_and_never_cut(tmp_path):
    folder = published(
        tmp_path, *(clean_record(name, tokens=tokens) for name, tokens in (("a", 20), ("b", 11), ("c", 30)))
    )
    assert len(PackedRef2VADataset(folder, DatasetSettings(max_presentation_tokens=30))) == 3
    with pytest.raises(ValidationError) as error:
        PackedRef2VADataset(folder, DatasetSettings(max_presentation_tokens=19))
    assert [(v.sample_id, v.found) for v in error.value.findings] == [
        ("a", "20 presentation tokens"),
        ("c", "30 presentation tokens"),
    ]


def test_a_document_no_capacity_holds_is_rejected_at_admission_with_its_length(tmp_path):
    folder = published(tmp_path, clean_record("a", tokens=300), clean_record("b"))
    with pytest.raises(ValidationError, match=r"\(a\): joint sequence of 330 rows; required: at most 256"):
        PackedRef2VADataset(folder, DatasetSettings(capacities=Capacities((256,))))


def test_a_batch_is_one_document(tmp_path):
    dataset = PackedRef2VADataset(published(tmp_path, clean_record("a"), clean_record("b")))
    assert collate([dataset[0]]).id == "a"
    with pytest.raises(ConfigError, match="2 documents, required is one"):
        next(iter(DataLoader(dataset, batch_size=2, collate_fn=collate)))


def test_an_index_is_required_or_built(tmp_path):
    folder = published(tmp_path, clean_record("a"))
    shutil.rmtree(folder / "map_style_cache")
    with pytest.raises(ValidationError, match="required: an existing index"):
        PackedRef2VADataset(folder, DatasetSettings(require_existing=True))
    assert len(PackedRef2VADataset(folder)) == 1
    assert len(PackedRef2VADataset(folder, DatasetSettings(require_existing=True))) == 1


# --- processes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opened", [PackedRef2VADataset, SFTRef2VADataset])
def test_the_folder_of_versions_and_one_that_is_not_there_are_told_in_one_error(tmp_path, opened):
    with pytest.raises(FormatError, match=r"gone: no such folder; required: .* Check the path\."):
        opened(str(tmp_path / "gone"))
    published(tmp_path, clean_record("a"))
    current = dataset_artifact(tmp_path).current
    for settings in (DatasetSettings(), DatasetSettings(require_existing=True)):
        with pytest.raises(FormatError, match=r"versions; required: .* Open .*demo/current\.$"):
            opened(str(current.parent), settings)


def test_a_pickled_dataset_carries_no_index_and_reads_the_same(tmp_path):
    dataset = PackedRef2VADataset(published(tmp_path, *(clean_record(f"row{number}") for number in range(20))))
    content = pickle.dumps(dataset)
    assert len(content) < 1000
    copy = pickle.loads(content)
    assert len(copy) == 20
    assert torch.equal(copy[3].vae_latent, dataset[3].vae_latent)


def test_loader_workers_read_what_the_process_itself_reads_in_the_samplers_order(tmp_path):
    records = [clean_record(f"s{number}") for number in range(5)] + [
        clean_record(f"w{number}", WIDE) for number in range(3)
    ]
    dataset = PackedRef2VADataset(published(tmp_path, *records))
    sampler = BucketBatchSampler(dataset, seed=3, rank=1, world_size=2)
    sampler.set_epoch(2)
    seen = list(DataLoader(dataset, batch_sampler=sampler, collate_fn=collate, num_workers=2))
    numbers = global_order(Schedule(bucket_sizes=(5, 3), groups=2, seed=3), 2)[:, 1].tolist()
    assert [document.id for document in seen] == [dataset.index.rows[number].id for number in numbers]
    for document, number in zip(seen, numbers, strict=True):
        assert torch.equal(document.ref_visual_anchor, dataset[number].ref_visual_anchor)


def test_a_datasets_version_is_that_of_its_rows_wherever_it_lies(tmp_path):
    records = [clean_record("a"), clean_record("b")]
    folder = published(tmp_path / "one", *records)
    shutil.copytree(folder, tmp_path / "copy")
    rebuild_index(tmp_path / "copy")
    version = PackedRef2VADataset(folder).version
    assert PackedRef2VADataset(tmp_path / "copy").version == version
    other = published(tmp_path / "two", records[0], replace(records[1], caption="another"))
    assert PackedRef2VADataset(other).version != version


def test_an_interrupted_epoch_goes_on_with_other_ranks_and_workers(tmp_path):
    records = [clean_record(f"s{number}") for number in range(5)] + [
        clean_record(f"w{number}", WIDE) for number in range(4)
    ]
    dataset = PackedRef2VADataset(published(tmp_path, *records))
    sampler = BucketBatchSampler(dataset)
    loader = DataLoader(dataset, batch_sampler=sampler, collate_fn=collate, num_workers=2)
    trained = [document.id for document, _ in zip(loader, range(3), strict=False)]
    state = json.loads(json.dumps(sampler.state_dict(consumed=3)))
    repeated = {}
    for rank in range(2):
        resumed = BucketBatchSampler(dataset, rank=rank, world_size=2)
        resumed.load_state_dict(state)
        repeated = resumed.repeats
        trained += [document.id for document in DataLoader(dataset, batch_sampler=resumed, collate_fn=collate)]
    assert set(trained) == {record.id for record in records}
    assert len(trained) == len(records) + sum(repeated.values())


def test_reading_batches_loads_no_encoder_no_decoder_and_no_framework(tmp_path):
    folder = published(tmp_path, clean_record("a"))
    code = """
import json, sys
from pathlib import Path
from muvap_assets.ref2va.dataset import PackedRef2VADataset
import muvap_assets.ref2va.sampler
PackedRef2VADataset(Path(sys.argv[1]))[0]
print(json.dumps([name for name in ("diffusers", "transformers", "av", "cv2", "PIL", "dagster") if name in sys.modules]))
"""
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


def test_publishing_and_indexing_import_no_torch():
    code = """
import sys
import muvap_assets.ref2va.cache, muvap_assets.ref2va.publication, muvap_assets.ref2va.plan_report
print([name for name in ("torch", "diffusers", "transformers", "dagster") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
