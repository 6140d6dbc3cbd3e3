"""Folders that are broken, hostile or unsuitable: each is refused by name, before anything runs."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transformers

from edgeserve.convert import ExportRequest, parse_source
from edgeserve.convert.huggingface import load_folder
from edgeserve.convert.source import export_source
from edgeserve.errors import ConvertError
from edgeserve.installation import install_command
from edgeserve.types.options import ExportSettings

Change = Callable[[Path, dict[str, Any]], None]


def refused(folder: Path, task: Any = None) -> ConvertError:
    with pytest.raises(ConvertError) as error:
        load_folder(folder, task)
    assert "\n" not in error.value.message + error.value.hint
    return error.value


@pytest.fixture
def trap(tmp_path: Path) -> tuple[object, Path]:
    """An object whose unpickling leaves a file behind, and that file."""
    mark = tmp_path / "executed"

    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (mark,)

    return Trap(), mark


# code


@pytest.mark.parametrize(
    "name", ["config.json", "tokenizer_config.json", "preprocessor_config.json"]
)
def test_remote_code_is_never_run(bert: Path, change: Change, tmp_path: Path, name: str) -> None:
    mark = tmp_path / "executed"
    (bert / "modeling_own.py").write_text(f"open({str(mark)!r}, 'w')\nclass Own: pass\n")
    change(bert / name, {"auto_map": {"AutoModel": "modeling_own.Own"}})
    error = refused(bert)
    assert error.code == "EDGE-CONVERT-062"
    assert name in error.message
    assert "modeling_own.Own" in error.message
    assert "--trust-remote-code" in error.hint
    assert "factory" in error.hint
    assert not mark.exists()


def test_a_module_of_the_folders_own_is_never_run(sentences: Callable[..., Path]) -> None:
    steps = [{"idx": 0, "name": "0", "path": "", "type": "custom_st.Transformer"}]
    error = refused(sentences(modules=steps))
    assert (error.code, error.thing) == ("EDGE-CONVERT-062", "modules.json: type")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.ckpt", "weights.pth"])
def test_pickled_weights_are_not_read(bert: Path, trap: tuple[object, Path], name: str) -> None:
    (bert / "model.safetensors").unlink()
    (bert / name).write_bytes(pickle.dumps(trap[0]))
    error = refused(bert)
    assert error.code == "EDGE-CONVERT-063"
    assert name in error.message
    assert "save_pretrained" in error.hint
    assert not trap[1].exists()


def test_pickles_beside_safetensors_are_not_read(bert: Path, trap: tuple[object, Path]) -> None:
    (bert / "pytorch_model.bin").write_bytes(pickle.dumps(trap[0]))
    load_folder(bert)
    assert not trap[1].exists()


# configurations


@pytest.mark.parametrize(
    ("text", "said"), [("{", "JSON"), ("[]", "list"), ("\udcff", "JSON"), ("[" * 100_000, "JSON")]
)
def test_a_config_that_is_none_is_refused(bert: Path, text: str, said: str) -> None:
    (bert / "config.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    error = refused(bert)
    assert error.code == "EDGE-CONVERT-061"
    assert said in error.message


@pytest.mark.parametrize(
    ("changes", "code", "said"),
    [
        ({"model_type": "no-such"}, "EDGE-CONVERT-067", "'no-such'"),
        ({"model_type": None}, "EDGE-CONVERT-067", "'none'"),
        ({"architectures": ["NoSuchModel"]}, "EDGE-CONVERT-067", "NoSuchModel"),
        ({"architectures": ["set_seed"]}, "EDGE-CONVERT-067", "set_seed"),
        ({"hidden_size": 15}, "EDGE-CONVERT-067", "BertModel"),
        ({"max_position_embeddings": 99}, "EDGE-CONVERT-066", "position_embeddings"),
        ({"quantization_config": {"quant_method": "gptq"}}, "EDGE-CONVERT-061", "quantization"),
    ],
)
def test_a_network_that_cannot_be_built_is_refused(
    bert: Path, change: Change, changes: dict[str, Any], code: str, said: str
) -> None:
    change(bert / "config.json", changes)
    error = refused(bert)
    assert error.code == code
    assert said in error.message


def test_an_adapter_is_no_model(bert: Path, change: Change) -> None:
    change(bert / "adapter_config.json", {"base_model_name_or_path": "elsewhere/base"})
    error = refused(bert)
    assert (error.code, "merge" in error.hint) == ("EDGE-CONVERT-061", True)


@pytest.mark.parametrize(
    ("architecture", "task", "possible"),
    [
        ("BertModel", "text-classification", "feature-extraction, tensors"),
        ("BertModel", "image-classification", "feature-extraction, tensors"),
        ("BertForSequenceClassification", "object-detection", "text-classification"),
    ],
)
def test_a_task_of_another_network_is_refused(
    bert: Path, change: Change, architecture: str, task: str, possible: str
) -> None:
    change(bert / "config.json", {"architectures": [architecture]})
    error = refused(bert, task)
    assert error.code == "EDGE-CONVERT-068"
    assert possible in error.message


@pytest.mark.parametrize("name", ["T5ForConditionalGeneration", "CLIPModel", "WhisperModel"])
def test_networks_of_more_than_a_text_or_picture_are_refused(name: str, tmp_path: Path) -> None:
    kind = getattr(transformers, name)
    config = kind.config_class(architectures=[name])
    config.save_pretrained(tmp_path)
    error = refused(tmp_path)
    assert (error.code, "factory" in error.hint) == ("EDGE-CONVERT-068", True)


def test_class_names_with_gaps_are_refused(bert: Path, change: Change) -> None:
    from edgeserve.convert.huggingface.folder import ModelFolder
    from edgeserve.convert.huggingface.model import labels_of, plan_network

    names = {"0": "a", "2": "c"}
    change(bert / "config.json", {"id2label": names})
    with pytest.raises(ConvertError) as error:
        labels_of(plan_network(ModelFolder(bert), None).config)
    assert error.value.code == "EDGE-CONVERT-061"


# tokenizers and sentence-transformers


@pytest.mark.parametrize("damage", ["gone", "broken", "python", "other"])
def test_tokenizers_that_cannot_be_carried_over(bert: Path, change: Change, damage: str) -> None:
    """Of a folder without one transformers makes an empty tokenizer, in silence."""
    path = bert / "tokenizer.json"
    if damage == "other":  # one of a larger vocabulary
        held = json.loads(path.read_text())
        held["model"]["vocab"]["unheard-of"] = 5000
        path.write_text(json.dumps(held))
    elif damage == "broken":
        path.write_text(path.read_text()[:200])
    else:
        path.unlink()
        (bert / "tokenizer_config.json").unlink()
    if damage == "python":  # CANINE's tokenizer is Python code
        change(bert / "tokenizer_config.json", {"tokenizer_class": "CanineTokenizer"})
    assert refused(bert).code == "EDGE-CONVERT-070"


@pytest.mark.parametrize("key", ["vocab", "merges"])
def test_words_are_never_read_from_elsewhere(bert: Path, change: Change, key: str) -> None:
    """Transformers opens such a path, and its lines would lie in every package."""
    secret = bert.parent / "secret.txt"
    secret.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\npassword\n")
    (bert / "vocab.txt").write_text(secret.read_text())
    (bert / "tokenizer.json").unlink()
    settings = {"tokenizer_class": "BertTokenizer", key: str(secret)}
    change(bert / "tokenizer_config.json", settings)
    assert refused(bert).code == "EDGE-CONVERT-065"


def test_tokenizer_files_of_versions_stay_in_the_folder(bert: Path, change: Change) -> None:
    names = ["tokenizer.json", "../tokenizer.4.0.0.json"]
    change(bert / "tokenizer_config.json", {"fast_tokenizer_files": names})
    assert refused(bert).code == "EDGE-CONVERT-065"


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"1_Pooling/config": {"pooling_mode": "weightedmean"}}, "weightedmean"),
        ({"1_Pooling/config": {"pooling_mode": ["cls", "mean"]}}, "cls + mean"),
        ({"1_Pooling/config": {"include_prompt": False}}, "include_prompt"),
        ({"sentence_bert_config": {"max_seq_length": "many"}}, "max_seq_length"),
        ({"sentence_bert_config": {"transformer_task": "fill-mask"}}, "fill-mask"),
        ({"sentence_bert_config": {"query_length": 32}}, "query_length"),
        (
            {
                "config_sentence_transformers": {
                    "prompts": {"q": "query: "},
                    "default_prompt_name": "q",
                }
            },
            "'query: '",
        ),
    ],
)
def test_steps_of_sentence_transformers_without_a_word_are_refused(
    sentences: Callable[..., Path], files: dict[str, Any], said: str
) -> None:
    error = refused(sentences(**files))
    assert error.code == "EDGE-CONVERT-071"
    assert said in error.message


@pytest.mark.parametrize("kinds", [["Transformer"], ["Transformer", "Pooling", "Dense"]])
def test_other_modules_are_refused(sentences: Callable[..., Path], kinds: list[str]) -> None:
    steps = [
        {"path": str(i) if i else "", "type": f"sentence_transformers.models.{kind}"}
        for i, kind in enumerate(kinds)
    ]
    error = refused(sentences(modules=steps))
    assert (error.code, ", ".join(kinds) in error.message) == ("EDGE-CONVERT-071", True)


@pytest.mark.parametrize("path", ["../bert", "/tmp", "1_Pooling/../.."])
def test_modules_outside_the_folder_are_refused(sentences: Callable[..., Path], path: str) -> None:
    folder = sentences()
    steps = json.loads((folder / "modules.json").read_text())
    steps[1]["path"] = path
    (folder / "modules.json").write_text(json.dumps(steps))
    assert refused(folder).code == ("EDGE-CONVERT-065")


# around


def test_missing_packages_are_named(bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "safetensors" else real(name)
    )
    error = refused(bert)
    assert error.code == "EDGE-CONVERT-060"
    assert "safetensors" in error.message
    assert error.hint == install_command("convert")


def test_packages_that_are_too_old_are_named(bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.metadata

    real = importlib.metadata.version
    monkeypatch.setattr(
        importlib.metadata, "version", lambda n: "4.57.1" if n == "transformers" else real(n)
    )
    error = refused(bert)
    assert error.code == "EDGE-CONVERT-060"
    assert error.hint.startswith("pip install -U 'transformers>=5.24'")
    assert "4.57.1" in error.hint


def test_nothing_is_asked_of_a_network(bert: Path) -> None:
    load_folder(bert)
    assert os.environ["HF_HUB_OFFLINE"] == "1"


def test_the_verb_passes_the_task_on(bert: Path, tmp_path: Path) -> None:
    request = ExportRequest(
        source=parse_source(str(bert), tmp_path),
        out=str(tmp_path / "out"),
        settings=ExportSettings(task="voice-activity"),
    )
    with pytest.raises(ConvertError) as error:
        export_source(request)
    assert error.value.code == "EDGE-CONVERT-068"
    assert not (tmp_path / "out").exists()
