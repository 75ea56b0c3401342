"""The real encoder against independent computations, byte for byte."""

import gc
import json
import shutil
import weakref
from dataclasses import replace

import numpy as np
import pytest
import torch
from encoder_rows import audio, frames, image, row, video, waveform
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from safetensors.numpy import load_file, save_file

from muvap_assets.codes import Code
from muvap_assets.errors import ConfigError, ValidationError
from muvap_assets.ref2va.contract import Format, Geometry, PresentedReference, ReferenceKind, Size
from muvap_assets.ref2va.encoder import Component, Stage
from muvap_assets.ref2va.encoder_spec import EncoderSpec
from muvap_assets.ref2va.geometry import target_audio_latents, target_audio_samples
from muvap_assets.ref2va.prefetch import stage_media

MEAN, STD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="session")
def plain_vae(tiny_checkpoint):
    from diffusers import AutoencoderKLMiniMaxH3

    return AutoencoderKLMiniMaxH3.from_pretrained(tiny_checkpoint / "vae").eval()


@pytest.fixture(scope="session")
def plain_audio_vae(tiny_checkpoint):
    from diffusers import AutoencoderKLMiniMaxH3Audio

    with pytest.warns(FutureWarning, match="weight_norm"):
        return AutoencoderKLMiniMaxH3Audio.from_pretrained(tiny_checkpoint / "audio_vae").eval()


@pytest.fixture(scope="session")
def presentation(tiny_spec):
    from muvap_assets.ref2va.h3 import open_presentation

    return open_presentation(tiny_spec)


def encode(encoder, stage, one):
    with encoder.loaded(stage.component) as loaded:
        return loaded.encode(stage, one, stage_media(stage, one, encoder.conditioner_frames), 1000)


def same_bytes(found, expected):
    expected = np.asarray(expected)
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert found.tobytes() == expected.tobytes()


def plain_video_latents(vae, pixels, *, half=False):
    """[24, T, h, w] by one plain ``vae.encode`` of the whole video."""
    normalized = (torch.from_numpy(pixels).float().div(255.0) - torch.tensor(MEAN, dtype=torch.float32)) / torch.tensor(
        STD, dtype=torch.float32
    )
    with torch.no_grad():
        posterior = vae.encode(normalized.permute(3, 0, 1, 2)[None].contiguous()).latent_dist
    latents = posterior.sample(generator=torch.Generator("cpu").manual_seed(42))[0].numpy()
    if half:
        latents = latents.astype(np.float16).astype(np.float32)
    shift = np.array(vae.config.latents_mean, dtype=np.float32)[:, None, None, None]
    scale = np.array(vae.config.latents_std, dtype=np.float32)[:, None, None, None]
    return (latents - shift) / scale


def numpy_patchified(latents):
    """Rows by four loops: frame-major, then row-major, feature c*4 + ph*2 + pw."""
    channels, count, height, width = latents.shape
    rows = []
    for t in range(count):
        for y in range(0, height, 2):
            for x in range(0, width, 2):
                rows.append([latents[c, t, y + py, x + px] for c in range(channels) for py in (0, 1) for px in (0, 1)])
    return np.array(rows, dtype=np.float32)


def plain_audio_latents(vae, wave):
    """[2, 32, T] by one plain ``audio_vae.encode``."""
    with torch.no_grad():
        latents = vae.encode(torch.from_numpy(wave)[:, None]).latent_dist.mode().numpy()
    shift = np.array(vae.config.latents_mean, dtype=np.float32)[None, :, None]
    return (latents - shift) / np.array(vae.config.latents_std, dtype=np.float32)[None, :, None]


@pytest.mark.parametrize("num_frames", [5, 22, 39])
def test_target_latents_encoded_clip_by_clip_equal_one_plain_vae_encode(tiny_encoder, plain_vae, num_frames):
    geometry = Geometry(128, 64, num_frames)
    found = encode(tiny_encoder, Stage.TARGET_VIDEO, row(geometry=geometry))["vae_latent"]
    same_bytes(found, plain_video_latents(plain_vae, frames(10, num_frames, geometry.size)))


def test_a_canvas_of_several_tiles_equals_one_plain_vae_encode(tiny_encoder, plain_vae):
    geometry = Geometry(320, 288, 5)
    found = encode(tiny_encoder, Stage.TARGET_VIDEO, row(geometry=geometry))["vae_latent"]
    same_bytes(found, plain_video_latents(plain_vae, frames(10, 5, geometry.size)))


@pytest.mark.parametrize("format", list(Format))
@pytest.mark.parametrize("num_frames", [22, 124])
def test_target_audio_equals_one_plain_audio_vae_encode_of_the_cut_waveform(
    tiny_encoder, plain_audio_vae, format, num_frames
):
    one = row(geometry=Geometry(32, 32, num_frames), format=format)
    found = encode(tiny_encoder, Stage.TARGET_AUDIO, one)["audio_latent"]
    cut = waveform(10, target_audio_samples(num_frames, format))
    same_bytes(found, plain_audio_latents(plain_audio_vae, cut))
    assert found.shape == (2, 32, target_audio_latents(num_frames))


@pytest.mark.parametrize("format", list(Format))
def test_counts_that_would_give_a_latent_too_many_are_cut_before_encoding(tiny_encoder, format):
    counts = {158: 263, 209: 348, 260: 433, 311: 518, 362: 603}
    rows = {num_frames: row(geometry=Geometry(32, 32, num_frames), format=format) for num_frames in counts}
    with tiny_encoder.loaded(Component.AUDIO_VAE) as loaded:
        for num_frames, latents in counts.items():
            media = stage_media(Stage.TARGET_AUDIO, rows[num_frames], tiny_encoder.conditioner_frames)
            found = loaded.encode(Stage.TARGET_AUDIO, rows[num_frames], media, 0)["audio_latent"]
            assert found.shape == (2, 32, latents)


@pytest.mark.parametrize("num_frames", [345, 362])
def test_long_targets_up_to_362_frames_encode(tiny_encoder, num_frames):
    found = encode(tiny_encoder, Stage.TARGET_VIDEO, row(geometry=Geometry(32, 32, num_frames)))["vae_latent"]
    assert found.shape == (24, (num_frames - 5) // 17 * 5 + 2, 2, 2)


def test_a_frame_count_off_the_lattice_is_refused_and_not_snapped():
    with pytest.raises(ConfigError, match=r"130.*17 \* n \+ 5"):
        Geometry(64, 64, 130)


def test_reference_rows_equal_plain_encodes_rounded_to_half_and_patchified_in_numpy(tiny_encoder, plain_vae):
    one = row("row", audio(), image(1, Size(96, 64)), video(2, Size(64, 96), 30, sound=1700), image(4, Size(64, 64)))
    found = encode(tiny_encoder, Stage.REFERENCE_VISUAL, one)
    pixels = [frames(1, 1, Size(96, 64)), frames(2, 30, Size(64, 96))[:22], frames(4, 1, Size(64, 64))]
    latents = [plain_video_latents(plain_vae, each, half=True) for each in pixels]
    same_bytes(found["ref_visual_rows"], np.concatenate([numpy_patchified(each) for each in latents]))
    assert found["ref_visual_geometry"].tolist() == [[1, 4, 6], [7, 6, 4], [1, 4, 4]]


@pytest.mark.parametrize("count", [13, 17, 18, 21])
def test_a_reference_video_under_22_frames_is_filled_up_by_the_vae(tiny_encoder, plain_vae, count):
    one = row("row", video(2, Size(64, 64), count))
    found = encode(tiny_encoder, Stage.REFERENCE_VISUAL, one)["ref_visual_rows"]
    expected = plain_video_latents(plain_vae, frames(2, count, Size(64, 64)), half=True)
    same_bytes(found, numpy_patchified(expected))
    assert len(found) == one.references[0].geometry.visual_rows


def test_audio_rows_are_channel_major_in_declared_order(tiny_encoder, plain_audio_vae):
    one = row("row", video(2, sound=1700), image(), audio(3, 9000))
    found = encode(tiny_encoder, Stage.REFERENCE_AUDIO, one)
    expected = [plain_audio_latents(plain_audio_vae, wave) for wave in (waveform(2, 1700), waveform(3, 9000))]
    same_bytes(found["ref_audio_rows"], np.concatenate([np.concatenate([c.T for c in each]) for each in expected]))
    assert found["ref_audio_latents"].tolist() == [3, 12]


def test_text_equals_the_state_after_layer_50_of_a_plain_model_that_keeps_all_states(tiny_encoder, tiny_checkpoint):
    from transformers import Qwen2TokenizerFast, Qwen3VLForConditionalGeneration, Qwen3VLProcessor

    one = row(
        "row", video(2, Size(96, 64), 30, sound=1700), image(1, Size(96, 64)), audio(), caption="Walks in the ünï"
    )
    found = encode(tiny_encoder, Stage.TEXT, one)
    tokenizer = Qwen2TokenizerFast.from_pretrained(tiny_checkpoint / "tokenizer")
    processor = Qwen3VLProcessor.from_pretrained(tiny_checkpoint / "processor")
    model = Qwen3VLForConditionalGeneration.from_pretrained(
        tiny_checkpoint / "text_encoder", dtype=torch.bfloat16
    ).eval()
    images = processor.image_processor(images=[Image.fromarray(frames(1, 1, Size(96, 64))[0])], return_tensors="pt")
    clip = frames(2, 30, Size(96, 64))[[0, 12, 24]]
    clips = processor.video_processor(videos=[clip], do_sample_frames=False, return_tensors="pt")
    # Frames 0, 12, 24 lie at 0, 0.5 and 1 s; the last is repeated: blocks at 0.25 s, shown as 0.2, and at 1.0 s.
    block = int(clips["video_grid_thw"][0, 1:].prod()) // 4
    picture = int(images["image_grid_thw"].prod()) // 4
    spans = [
        ("<Audio 1>: <Video 1>: ", 1),
        *[("<0.2 seconds>", 1), ("<|vision_start|>" + "<|video_pad|>" * block + "<|vision_end|>", 0)],
        *[("<1.0 seconds>", 1), ("<|vision_start|>" + "<|video_pad|>" * block + "<|vision_end|>", 0)],
        *[("<Picture 1>: ", 1), ("<|vision_start|>" + "<|image_pad|>" * picture + "<|vision_end|>", 0)],
        *[("<Audio 2>: ", 1), ("Walks in the ünï", 1)],
    ]
    ids, tags = [], []
    for text, tag in spans:
        part = tokenizer(text, add_special_tokens=False)["input_ids"]
        ids, tags = ids + part, tags + [tag] * len(part)
    with torch.no_grad():
        states = model(
            input_ids=torch.tensor([ids]),
            attention_mask=torch.ones(1, len(ids), dtype=torch.long),
            mm_token_type_ids=torch.tensor(processor.create_mm_token_type_ids([ids])),
            pixel_values=images["pixel_values"].to(torch.bfloat16),
            image_grid_thw=images["image_grid_thw"],
            pixel_values_videos=clips["pixel_values_videos"].to(torch.bfloat16),
            video_grid_thw=clips["video_grid_thw"],
            output_hidden_states=True,
            use_cache=False,
        ).hidden_states
    same_bytes(found["text_embedding"], states[50][0].float().numpy())
    assert found["text_token_tags"].tolist() == tags
    plan = tiny_encoder.plan_tokens(one.caption, [reference.presented for reference in one.references])
    assert plan.total == len(ids)


def test_every_tensor_equals_the_stock_blocks(tiny_encoder, tiny_checkpoint):
    from diffusers.modular_pipelines.minimax_h3 import (
        MiniMaxH3AudioReference,
        MiniMaxH3ImageReference,
        MiniMaxH3VideoReference,
    )
    from diffusers.modular_pipelines.minimax_h3.before_denoise import patchify_video_latents
    from diffusers.modular_pipelines.minimax_h3.encoders import (
        MiniMaxH3Ref2VAReferenceEncoderStep,
        MiniMaxH3Ref2VATextEncoderStep,
    )

    one = row("row", image(1), video(2, count=40, sound=3300), audio(3))
    stock = [
        MiniMaxH3ImageReference(image=Image.fromarray(frames(1, 1, Size(96, 64))[0])),
        MiniMaxH3VideoReference(
            frames=frames(2, 40, Size(96, 64)), audio=torch.from_numpy(waveform(2, 3300)), sample_rate=32_000
        ),
        MiniMaxH3AudioReference(audio=torch.from_numpy(waveform(3, 9000)), sample_rate=32_000),
    ]
    references = MiniMaxH3Ref2VAReferenceEncoderStep().init_pipeline(str(tiny_checkpoint))
    with pytest.warns(FutureWarning, match="weight_norm"):
        references.load_components(dtype=torch.float32)
    text = MiniMaxH3Ref2VATextEncoderStep().init_pipeline(str(tiny_checkpoint))
    text.load_components(dtype=torch.bfloat16)
    output = references(normalized_references=stock, output=["condition_latents", "audio_condition_latents"])
    said = text(prompt=one.caption, normalized_references=stock, output=["prompt_embeds", "text_token_tags"])
    rows = [patchify_video_latents(latents, (1, 2, 2)) for latents in output["condition_latents"]]
    same_bytes(encode(tiny_encoder, Stage.REFERENCE_VISUAL, one)["ref_visual_rows"], torch.cat(rows).numpy())
    sound = torch.cat(output["audio_condition_latents"]).numpy()
    same_bytes(encode(tiny_encoder, Stage.REFERENCE_AUDIO, one)["ref_audio_rows"], sound)
    found = encode(tiny_encoder, Stage.TEXT, one)
    same_bytes(found["text_embedding"], said["prompt_embeds"][0].float().numpy())
    same_bytes(found["text_token_tags"], said["text_token_tags"].numpy())


def test_a_component_is_gone_before_the_next_one_is_loaded(tiny_encoder):
    seen = []
    for component in Component:
        assert all(reference() is None for reference in seen)
        with tiny_encoder.loaded(component) as loaded:
            seen.append(weakref.ref(loaded.model))
    gc.collect()
    assert all(reference() is None for reference in seen)
    assert tiny_encoder.loads == {component: 1 for component in Component}


def test_loading_while_another_component_is_still_referenced_is_refused(tiny_encoder):
    with tiny_encoder.loaded(Component.VAE) as loaded:
        held = loaded.model
    with pytest.raises(ValidationError, match="still referenced"), tiny_encoder.loaded(Component.AUDIO_VAE):
        pass
    del held
    with tiny_encoder.loaded(Component.AUDIO_VAE):
        pass


def test_threads_and_kernel_settings_are_put_back(tiny_spec):
    from muvap_assets.ref2va.checkpoint import fixed_arithmetic

    torch.set_num_threads(2)
    with fixed_arithmetic(tiny_spec):
        assert torch.get_num_threads() == 1
        assert torch.backends.cudnn.deterministic
    assert torch.get_num_threads() == 2


def test_out_of_device_memory_names_the_row_its_length_and_what_to_change(tiny_encoder, monkeypatch):
    one = row("clip_0017")
    with tiny_encoder.loaded(Component.VAE) as loaded:

        def full(pixels):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.\nmore")

        monkeypatch.setattr(loaded.model, "_encode_clip", full)
        with pytest.raises(
            ValidationError, match=r"clip_0017.*52717 rows.*128x64 with 22 frames.*smaller canvas"
        ) as info:
            loaded.encode(
                Stage.TARGET_VIDEO, one, stage_media(Stage.TARGET_VIDEO, one, tiny_encoder.conditioner_frames), 52_717
            )
    assert info.value.finding.code is Code.DEVICE_MEMORY


@pytest.mark.parametrize("change", ["fewer", "more", "size", "dtype"])
def test_target_frames_that_are_not_what_the_row_promises_are_refused(tiny_encoder, change):
    made = {
        "fewer": frames(1, 21, Size(128, 64)),
        "more": frames(1, 23, Size(128, 64)),
        "size": frames(1, 22, Size(64, 64)),
        "dtype": frames(1, 22, Size(128, 64)).astype(np.float32),
    }[change]
    one = replace(row(), target_frames=lambda: iter([made]))
    with pytest.raises(ValidationError, match="required"):
        encode(tiny_encoder, Stage.TARGET_VIDEO, one)


def test_a_caption_with_a_vision_token_is_refused(tiny_encoder):
    with pytest.raises(ValidationError, match=r"<\|image_pad\|>") as info:
        tiny_encoder.plan_tokens("a <|image_pad|> b", [image().presented])
    assert info.value.finding.code is Code.CAPTION_HOLDS_VISION_TOKEN


def test_the_token_plan_counts_every_part(tiny_encoder):
    references = [r.presented for r in (image(), video(count=30), audio())]
    plan = tiny_encoder.plan_tokens("The singer", references)
    assert plan.total == plan.caption_tokens + sum(plan.reference_tokens)
    # "<Audio 1>: " has no vision block and none of its text is merged: one token a byte.
    assert plan.reference_tokens[2] == len("<Audio 1>: ")
    assert tiny_encoder.loads == {}


@settings(max_examples=40, deadline=None)
@given(
    kind=st.sampled_from([ReferenceKind.IMAGE, ReferenceKind.VIDEO]),
    size=st.builds(Size, st.integers(1, 10).map(lambda n: 32 * n), st.integers(1, 10).map(lambda n: 32 * n)),
    count=st.integers(13, 50),
)
def test_the_plan_of_any_size_equals_what_the_processor_makes_of_its_pixels(presentation, kind, size, count):
    """``vision`` raises where the processor's grids are not the planned ones, so going through is the proof."""
    count = count if kind is ReferenceKind.VIDEO else 1
    reference = PresentedReference(kind=kind, size=size, frames=count)
    sampled = list(presentation.sample(count)[0]) if kind is ReferenceKind.VIDEO else [0]
    tensors = presentation.vision([reference], {0: np.zeros((len(sampled), size.height, size.width, 3), np.uint8)})
    grid = next(value for name, value in tensors.items() if name.endswith("grid_thw"))
    _, tags = presentation.tokens("", [reference])
    # Two of a block's rows are its start and end; four patches merge into one of the others.
    assert tags.count(0) == int(grid.prod()) // 4 + 2 * int(grid[0, 0])


def test_one_clip_of_a_target_is_in_memory_at_a_time(tiny_encoder):
    alive = []

    def blocks():
        for start in range(0, 124, 17):
            block = frames(1, min(17, 124 - start), Size(32, 32))
            alive.append(weakref.ref(block))
            assert sum(reference() is not None for reference in alive) <= 3
            yield block
            del block

    one = replace(row(geometry=Geometry(32, 32, 124)), target_frames=blocks)
    assert encode(tiny_encoder, Stage.TARGET_VIDEO, one)["vae_latent"].shape == (24, 37, 2, 2)


# --- refusals ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def broken(tiny_checkpoint, tmp_path):
    """A copy of the tiny checkpoint to break."""
    return shutil.copytree(tiny_checkpoint, tmp_path / "checkpoint")


def open_all(checkpoint, *components):
    from muvap_assets.ref2va.h3 import H3Encoder

    encoder = H3Encoder(EncoderSpec(checkpoint=checkpoint, device="cpu"))
    for component in components:
        with encoder.loaded(component):
            pass
    return encoder


@pytest.mark.parametrize("name", ["vae", "audio_vae", "tokenizer", "processor", "text_encoder", "transformer_ref"])
def test_a_missing_component_folder_is_refused_by_name(broken, name):
    shutil.rmtree(broken / name)
    with pytest.raises(ConfigError, match=f"no {name}, required"):
        open_all(broken)


@pytest.mark.parametrize(
    ("name", "files", "told"),
    [
        ("tokenizer", None, "checkpoint {0}: no tokenizer, required are the folders"),
        ("processor", None, "checkpoint {0}: no processor, required are the folders"),
        ("tokenizer", ["tokenizer.json"], "{0}/tokenizer: it lacks tokenizer.json, or vocab.json and merges.txt,"),
        (
            "processor",
            ["processor_config.json"],
            "{0}/processor: it lacks processor_config.json, or preprocessor_config",
        ),
    ],
)
def test_a_checkpoint_that_cannot_count_tokens_is_one_line_that_names_folder_and_file(broken, name, files, told):
    """The tokenizer's library would load an empty vocabulary in silence, and takes a missing folder for an address."""
    from muvap_assets.ref2va.h3 import open_presentation

    if files is None:
        shutil.rmtree(broken / name)
    for file in files or ():
        (broken / name / file).unlink()
    with pytest.raises(ConfigError) as raised:
        open_presentation(EncoderSpec(checkpoint=broken, device="cpu"))
    message = str(raised.value)
    assert told.format(broken) in message
    assert "\n" not in message
    assert "epo id" not in message


def test_a_checkpoint_without_its_index_is_refused(broken):
    (broken / "modular_model_index.json").unlink()
    with pytest.raises(ConfigError, match="modular_model_index"):
        open_all(broken)


WEIGHTS = {
    Component.VAE: "diffusion_pytorch_model.safetensors",
    Component.AUDIO_VAE: "diffusion_pytorch_model.safetensors",
}


@pytest.mark.parametrize("component", list(WEIGHTS))
def test_a_component_that_lacks_a_weight_is_refused(broken, component):
    path = broken / component / WEIGHTS[component]
    tensors = load_file(path)
    name = next(name for name in tensors if name.startswith("encoder"))
    tensors.pop(name)
    save_file(tensors, path)
    with pytest.raises(ConfigError, match=rf"{component}.*(missing_keys|on meta|cannot be loaded)"):
        open_all(broken, component)


def test_a_text_encoder_that_lacks_a_weight_is_refused(broken):
    import safetensors.torch

    path = broken / "text_encoder" / "model.safetensors"
    tensors = safetensors.torch.load_file(path)
    tensors.pop(next(name for name in tensors if "layers.7.mlp" in name))
    safetensors.torch.save_file(tensors, path, metadata={"format": "pt"})
    with pytest.raises(ConfigError, match=r"text_encoder.*missing_keys.*layers\.7"):
        open_all(broken, Component.TEXT_ENCODER)


def test_a_truncated_weight_file_is_refused(broken):
    path = broken / "vae" / "diffusion_pytorch_model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ConfigError, match=r"vae.*cannot be loaded"):
        open_all(broken, Component.VAE)


def test_a_component_that_loads_as_none_is_refused(tiny_spec):
    from muvap_assets.ref2va.checkpoint import load_component

    class Nothing:
        @staticmethod
        def from_pretrained(folder, **options):
            return None, {}

    with pytest.raises(ConfigError, match="loaded as None"):
        load_component(Nothing, tiny_spec, "vae")


def test_a_parameter_left_on_meta_is_refused(tiny_spec):
    from muvap_assets.ref2va.checkpoint import load_component

    class Meta:
        @staticmethod
        def from_pretrained(folder, **options):
            return torch.nn.Linear(2, 2, device="meta"), {}

    with pytest.raises(ConfigError, match=r"2 parameters on meta.*weight"):
        load_component(Meta, tiny_spec, "vae")


def test_a_conditioner_of_only_50_layers_is_refused(broken):
    path = broken / "text_encoder" / "config.json"
    config = json.loads(path.read_text())
    config["text_config"]["num_hidden_layers"] = 50
    path.write_text(json.dumps(config))
    with pytest.raises(ConfigError, match="50 decoder layers, required are more than 50"):
        open_all(broken, Component.TEXT_ENCODER)


def test_the_cpu_serves_only_a_tiny_checkpoint(tiny_spec, monkeypatch):
    from muvap_assets.ref2va import checkpoint
    from muvap_assets.ref2va.h3 import H3Encoder

    monkeypatch.setattr(checkpoint, "TINY_PARAMETERS", 1000)
    with pytest.raises(ConfigError, match=r"device is 'cpu'.*parameters.*CUDA device"):
        H3Encoder(tiny_spec)


def test_the_parameter_count_is_read_off_the_headers(tiny_checkpoint):
    import safetensors.torch

    from muvap_assets.ref2va.checkpoint import parameter_count

    files = tiny_checkpoint.glob("*/*.safetensors")
    assert parameter_count(tiny_checkpoint) == sum(
        tensor.numel() for path in files for tensor in safetensors.torch.load_file(path).values()
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is available")
def test_a_cuda_device_that_is_not_there_is_refused(tiny_checkpoint):
    from muvap_assets.ref2va.h3 import H3Encoder

    with pytest.raises(ConfigError, match=r"'cuda:3'.*0 CUDA device"):
        H3Encoder(EncoderSpec(checkpoint=tiny_checkpoint, device="cuda:3"))


def test_the_hub_is_never_asked(tiny_spec, monkeypatch):
    import os

    from huggingface_hub import constants

    from muvap_assets.ref2va.checkpoint import offline

    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    before = constants.HF_HUB_OFFLINE
    with offline():
        assert os.environ["HF_HUB_OFFLINE"] == "1"
        assert constants.HF_HUB_OFFLINE is True
    assert "HF_HUB_OFFLINE" not in os.environ
    assert constants.HF_HUB_OFFLINE is before


# --- fingerprint -------------------------------------------------------------------------------------------------------


def test_the_fingerprint_of_a_stage_changes_with_what_the_stage_depends_on_and_nothing_else(broken):
    from muvap_assets.ref2va.encoder_spec import fingerprint_of

    spec = EncoderSpec(checkpoint=broken, device="cpu")

    def changed(other, before):
        return {stage for stage in Stage if other.digest(stage) != before.digest(stage)}

    before = fingerprint_of(spec)
    assert changed(fingerprint_of(spec), before) == set()
    assert changed(fingerprint_of(replace(spec, threads=2)), before) == set(Stage)
    assert changed(fingerprint_of(replace(spec, text_dtype="float32")), before) == {Stage.TEXT}
    for folder, stages in (
        ("vae", {Stage.TARGET_VIDEO, Stage.REFERENCE_VISUAL}),
        ("audio_vae", {Stage.TARGET_AUDIO, Stage.REFERENCE_AUDIO}),
        ("processor", {Stage.TEXT}),
        ("tokenizer", {Stage.TEXT}),
        ("text_encoder", {Stage.TEXT}),
        ("transformer_ref", set()),
    ):
        before = fingerprint_of(spec)
        config = next((broken / folder).glob("*config.json"))
        config.write_text(config.read_text() + "\n")
        assert changed(fingerprint_of(spec), before) == stages, folder


def test_the_fingerprint_names_no_path(tiny_spec):
    from muvap_assets.ref2va.encoder_spec import fingerprint_of

    text = json.dumps({str(stage): facts for stage, facts in fingerprint_of(tiny_spec).stages.items()})
    assert str(tiny_spec.checkpoint) not in text
    assert "/" not in text


def test_unchanged_weights_are_hashed_once_for_all_runs(tiny_spec, tmp_path, monkeypatch):
    from muvap_assets.ref2va.encoder_spec import fingerprint_of
    from muvap_assets.storage.digests import Digests

    monkeypatch.setattr("muvap_assets.storage.digests.SETTLED_SEC", -1.0)
    first, second = Digests(tmp_path / "digests.json"), None
    before = fingerprint_of(tiny_spec, first)
    second = Digests(tmp_path / "digests.json")
    assert fingerprint_of(tiny_spec, second) == before
    assert (first.hashed > 0, second.hashed) == (True, 0)


def test_a_reference_with_sound_it_does_not_declare_is_refused():
    with pytest.raises(ConfigError, match="none of its sound"):
        replace(video(sound=100), kind=ReferenceKind.VIDEO)
