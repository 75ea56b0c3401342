"""From a raw manifest and media files to checked rows, against the stock blocks from the media on."""

import numpy as np
import pytest
import torch
from media_makers import raw_row, target, tone, write_rows, write_sound, write_video
from PIL import Image

from muvap_assets.media.video import VideoSource
from muvap_assets.ref2va.contract import DatasetOptions, Format, ModelSizes
from muvap_assets.ref2va.encode import EncodeOptions, encode_rows
from muvap_assets.ref2va.encoder_spec import read_model_index
from muvap_assets.ref2va.manifest import validate_manifest
from muvap_assets.ref2va.media_facts import MediaFacts
from muvap_assets.ref2va.prepare import row_input
from muvap_assets.ref2va.records import read_shard
from muvap_assets.ref2va.row_store import RowStore


@pytest.fixture
def options(tiny_checkpoint):
    sizes = ModelSizes.of_index(read_model_index(tiny_checkpoint))
    return DatasetOptions(width=128, height=64, num_frames=22, sizes=sizes, allow_outside=True)


def encode_manifest(path, options, encoder, root):
    """Validate and encode; asserts that the token counts the report gives are those encoded."""
    report = validate_manifest(path, options, facts=MediaFacts(), planner=encoder)
    assert [v.message() for v in report.findings if v.severity == "error"] == []
    rows = [row_input(each.plan, each.sample, MediaFacts(), options) for each in report.admitted]
    encoded = encode_rows(rows, encoder, RowStore(root), EncodeOptions(source=path.name))
    assert [v.message() for v in encoded.findings] == []
    for counted, row in zip(report.admitted, encoded.rows, strict=True):
        assert (counted.tokens.total, counted.sequence_length) == (row.text_tokens, row.sequence_length)
    return [read_shard(row.path)[0] for row in encoded.rows]


def test_media_files_of_every_kind_become_the_rows_the_stock_setup_step_and_blocks_give(
    tmp_path, options, tiny_encoder, tiny_checkpoint, one_thread, monkeypatch
):
    from diffusers.modular_pipelines.minimax_h3 import (
        MiniMaxH3AudioReference,
        MiniMaxH3ImageReference,
        MiniMaxH3VideoReference,
    )
    from diffusers.modular_pipelines.minimax_h3.before_denoise import patchify_video_latents
    from diffusers.modular_pipelines.minimax_h3.before_encoder import MiniMaxH3Ref2VASetupStep
    from diffusers.modular_pipelines.minimax_h3.encoders import (
        MiniMaxH3Ref2VAReferenceEncoderStep,
        MiniMaxH3Ref2VATextEncoderStep,
    )

    target(tmp_path / "target.mov")
    write_video(tmp_path / "clip.mov", frames=30, fps=30, size=(96, 80))
    sound = tone(32_000)
    write_sound(tmp_path / "voice.wav", sound, codec="pcm_f32le")
    picture = np.random.default_rng(0).integers(0, 256, (70, 90, 3), dtype=np.uint8)
    Image.fromarray(picture).save(tmp_path / "picture.png")
    references = [
        {"type": "audio", "audio": "voice.wav"},
        {"type": "image", "image": "picture.png"},
        {"type": "video", "video": "clip.mov"},
        {"type": "video_audio", "video": "clip.mov", "audio": "voice.wav"},
    ]
    path = write_rows(tmp_path / "train.jsonl", [raw_row(references=references)])
    (record,) = encode_manifest(path, options, tiny_encoder, tmp_path / "store")

    with VideoSource(tmp_path / "clip.mov") as source:
        clip = np.stack([frame.pixels() for frame in source.frames()])
    waveform = torch.from_numpy(sound)
    stock = [
        MiniMaxH3AudioReference(audio=waveform, sample_rate=32_000),
        MiniMaxH3ImageReference(image=Image.fromarray(picture)),
        MiniMaxH3VideoReference(frames=clip, fps=30.0),
        MiniMaxH3VideoReference(frames=clip, fps=30.0, audio=waveform, sample_rate=32_000),
    ]
    setup = MiniMaxH3Ref2VASetupStep().init_pipeline(str(tiny_checkpoint))
    setup.load_components()
    # The stock pipeline refuses targets under five seconds; this one is short for speed.
    monkeypatch.setattr(type(setup), "min_duration", property(lambda _: 0.0))
    ready = setup(references=stock, height=64, width=128, num_frames=22, output=["normalized_references", "num_frames"])
    assert ready["num_frames"] == 22
    normalized = ready["normalized_references"]
    encoder = MiniMaxH3Ref2VAReferenceEncoderStep().init_pipeline(str(tiny_checkpoint))
    with pytest.warns(FutureWarning, match="weight_norm"):
        encoder.load_components(dtype=torch.float32)
    output = encoder(normalized_references=normalized, output=["condition_latents", "audio_condition_latents"])
    text = MiniMaxH3Ref2VATextEncoderStep().init_pipeline(str(tiny_checkpoint))
    text.load_components(dtype=torch.bfloat16)
    said = text(prompt="A lamp.", normalized_references=normalized, output=["prompt_embeds", "text_token_tags"])

    rows = torch.cat([patchify_video_latents(latents, (1, 2, 2)) for latents in output["condition_latents"]])
    np.testing.assert_array_equal(record.visual_rows, rows.numpy())
    np.testing.assert_array_equal(record.audio_rows, torch.cat(output["audio_condition_latents"]).numpy())
    np.testing.assert_array_equal(record.text_embedding, said["prompt_embeds"][0].float().numpy())
    np.testing.assert_array_equal(record.text_token_tags, said["text_token_tags"].numpy())
    assert record.geometry == options.geometry
    assert record.vae_latent.shape == (24, 7, 4, 8)
    assert record.file_name == "target.mov"


@pytest.mark.real
def test_real_media_go_through_whole(tmp_path, real_media, tiny_encoder, options):  # acceptance 3
    for name in ("bigbuckbunny.mp4", "bikes.mp4", "sample.wav"):
        (tmp_path / name).symlink_to((real_media / name).resolve())
    with VideoSource(tmp_path / "bikes.mp4") as bikes:
        Image.fromarray(next(bikes.frames()).pixels()).save(tmp_path / "bikes.png")
    references = [
        {"type": "video", "video": "bikes.mp4"},
        {"type": "image", "image": "bikes.png"},
        {"type": "audio", "audio": "sample.wav"},
    ]
    geometry = {"width": 128, "height": 64, "num_frames": 124}
    row = raw_row(target={"video": "bigbuckbunny.mp4"}, references=references, target_geometry=geometry)
    path = write_rows(tmp_path / "train.jsonl", [row])
    (record,) = encode_manifest(path, options, tiny_encoder, tmp_path / "store")
    assert record.vae_latent.shape == (24, 37, 4, 8)
    assert record.audio_latent.shape == (2, 32, 207)
    assert [reference.media_type for reference in record.references] == ["video", "image", "audio"]
    assert record.format is Format.PACKED
