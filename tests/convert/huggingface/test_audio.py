"""Feature extractors of sounds become steps: every number as transformers makes it, or refused."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from edgeserve.convert.huggingface import load_folder
from edgeserve.convert.huggingface.audio import audio_steps, load_feature_extractor
from edgeserve.convert.huggingface.folder import ModelFolder
from edgeserve.convert.huggingface.model import plan_network
from edgeserve.errors import ConvertError
from edgeserve.processing import Sound
from edgeserve.processing.steps.log_mel import LogMel
from edgeserve.processing.steps.waveform import Waveform

RATE = 16_000
LABELS = dict(enumerate("abc"))
SMALL: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "num_labels": 3,
    "id2label": LABELS,
}


def sounds() -> list[np.ndarray]:
    """Of several lengths and levels: float32 at 16 kHz."""
    rng = np.random.default_rng(1)
    made = []
    for count, pitch in ((16_000, 200.0), (9000, 900.0), (24_001, 3000.0), (5000, 60.0)):
        time = np.arange(count) / RATE
        tone = np.sin(2 * np.pi * pitch * time) * np.sin(9 * time)
        made.append((0.4 * tone + 0.01 * rng.standard_normal(count)).astype(np.float32))
    return made


def quiet(kind: str, **settings: Any) -> Any:
    """An extractor, without its remarks about its own bands."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return getattr(transformers, f"{kind}FeatureExtractor")(**settings)


def saved(folder: Path, network: Any, extractor: Any) -> Path:
    network.save_pretrained(folder)
    extractor.save_pretrained(folder)
    return folder


@pytest.fixture
def wav2vec2(tmp_path: Path) -> Path:
    torch.manual_seed(2)
    config = transformers.Wav2Vec2Config(
        **SMALL,
        conv_dim=(8,) * 7,
        num_conv_pos_embeddings=8,
        num_conv_pos_embedding_groups=2,
        classifier_proj_size=8,
        initializer_range=0.5,
    )
    network = transformers.Wav2Vec2ForSequenceClassification(config).eval()
    return saved(tmp_path / "wav2vec2", network, quiet("Wav2Vec2"))


@pytest.fixture
def ast(tmp_path: Path) -> Path:
    torch.manual_seed(3)
    config = transformers.ASTConfig(
        **SMALL,
        max_length=64,
        num_mel_bins=32,
        frequency_stride=8,
        time_stride=8,
        patch_size=8,
        initializer_range=0.5,
    )
    network = transformers.ASTForAudioClassification(config).eval()
    return saved(tmp_path / "ast", network, quiet("AST", num_mel_bins=32, max_length=64))


@pytest.fixture
def whisper(tmp_path: Path) -> Path:
    torch.manual_seed(4)
    config = transformers.WhisperConfig(
        d_model=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=24,
        decoder_ffn_dim=24,
        num_mel_bins=16,
        max_source_positions=50,
        vocab_size=60,
        num_labels=3,
        id2label=LABELS,
        init_std=0.5,
        classifier_proj_size=8,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    network = transformers.WhisperForAudioClassification(config).eval()
    extractor = quiet("Whisper", feature_size=16, chunk_length=1)
    return saved(tmp_path / "whisper", network, extractor)


def wanted(folder: Path, network: Any, x: np.ndarray) -> np.ndarray:
    """Probabilities as a server of transformers has them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        extractor = transformers.AutoFeatureExtractor.from_pretrained(folder)
    with torch.no_grad():
        inputs = extractor(x, sampling_rate=RATE, return_tensors="pt")
        scores: np.ndarray = network(**inputs).logits.softmax(1)[0].numpy()
    return scores


@pytest.mark.filterwarnings("ignore:At least one mel filter")
@pytest.mark.parametrize("name", ["wav2vec2", "ast", "whisper"])
def test_a_classifier_decides_as_transformers_does(
    name: str, request: pytest.FixtureRequest, export: Any
) -> None:
    folder: Path = request.getfixturevalue(name)
    found = export(folder)
    exported = found.exported
    assert (exported.task, exported.labels) == ("audio-classification", ("a", "b", "c"))
    assert found.processor.medium == "audio"
    auto: Any = transformers.AutoModelForAudioClassification
    network = auto.from_pretrained(folder).eval()
    for x in sounds():
        scores = wanted(folder, network, x)
        (record,) = found.answers([Sound(x, RATE)])
        assert record.label == "abc"[int(scores.argmax())]
        assert record.score == pytest.approx(float(scores.max()), abs=1e-4)


def test_samples_of_any_number_stay_free(wav2vec2: Path, export: Any) -> None:
    exported = export(wav2vec2).exported
    (spec,) = exported.signature.inputs
    assert (spec.name, spec.shape) == ("input_values", ("batch", "samples"))
    assert exported.signature.dims["samples"] == (720, 480_000), "two frames of 400, 320 apart"
    (step,) = exported.processing.inputs[0].steps
    assert step == Waveform(rate=RATE, max_length=480_000, normalize="zero-mean-unit-variance")


@pytest.mark.filterwarnings("ignore:At least one mel filter")
def test_settings_are_read_and_proven() -> None:
    wave, mel = audio_steps(quiet("Whisper", feature_size=128), "input_features")
    assert wave == Waveform(rate=RATE, length=480_000)
    assert isinstance(mel, LogMel)
    assert (mel.mels, mel.frames, mel.below_max) == (128, 3000, 8.0)
    audio_steps(quiet("AST"), "input_values")
    audio_steps(quiet("AST", do_normalize=False, max_length=50), "input_values")
    audio_steps(quiet("Wav2Vec2", do_normalize=False, return_attention_mask=True), "input_values")
    audio_steps(quiet("Wav2Vec2", sampling_rate=8000), "input_values")


@pytest.mark.parametrize(
    ("kind", "settings", "said"),
    [
        ("Whisper", {"dither": 0.1}, "dither"),
        ("SeamlessM4T", {}, "SeamlessM4TFeatureExtractor"),
        ("Clap", {}, "ClapFeatureExtractor"),
    ],
)
def test_what_no_step_expresses_is_refused_by_name(
    kind: str, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConvertError) as error:
        audio_steps(quiet(kind, **settings), "input_features")
    assert error.value.code == "EDGE-CONVERT-069"
    assert said in error.value.message


def test_an_extractor_with_steps_of_its_own_is_seen() -> None:
    class Wav2Vec2FeatureExtractor(transformers.Wav2Vec2FeatureExtractor):
        def __call__(self, raw: Any, **settings: Any) -> Any:
            made = super().__call__(raw, **settings)
            made["input_values"] = [x * 1.001 for x in made["input_values"]]
            return made

    with pytest.raises(ConvertError, match="steps of its own") as error:
        audio_steps(Wav2Vec2FeatureExtractor(), "input_values")
    assert error.value.code == "EDGE-CONVERT-069"


def test_a_recogniser_s_head_gives_tensors(wav2vec2: Path) -> None:
    """Its alphabet lies in a tokenizer of its own, which says more than a list of labels can."""
    config = json.loads((wav2vec2 / "config.json").read_text())
    (wav2vec2 / "config.json").write_text(
        json.dumps(config | {"architectures": ["Wav2Vec2ForCTC"]})
    )
    planned = plan_network(ModelFolder(wav2vec2), None)
    assert (planned.task, planned.medium) == ("tensors", "audio")


def test_without_an_extractor_there_is_no_processing(wav2vec2: Path) -> None:
    (wav2vec2 / "preprocessor_config.json").unlink()
    with pytest.raises(ConvertError) as error:
        load_folder(wav2vec2)
    assert error.value.code == "EDGE-CONVERT-069"
    with pytest.raises(ConvertError):
        load_feature_extractor(wav2vec2)
