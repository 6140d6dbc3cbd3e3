"""Sentences that readers had to read twice are gone, and so are the private words behind them.

The list holds sentences of earlier versions of the pages, help texts, tables, reports and
messages. Each was replaced by a plainer one; none comes back. A sentence that the review quoted
with a gap is listed by its longest whole part.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

README = (
    "Public tools convert. edgeserve converts, then asks a gate that cannot be talked round: the"
    " same photos through your server and through the converted file, flips counted where the"
    " server was sure, with bounds over the number of independent inputs, and the smallest harm"
    " that this evidence could have seen.",
    "What fails never reaches a package. What ships carries golden cases, and answers them again on"
    " every device before the first prediction.",
    "proven to decide as your server does, on the raw bytes your users will send",
    "Core ML packages are made and run on any system by an interpreter of their programs; reports"
    " say that it was not Apple hardware.",
    "The same package answers behind an endpoint (edgeserve serve), and apps fall back to it under"
    " a declared contract.",
    "Each sets up .venv/ by itself from requirements.lock (Linux, Python 3.11, 2.8 GB).",
    "38 independent photos can show 7.6 % of changed answers at best, so that the quantized taggers"
    " stay unproven until there are more.",
    "An answer is clear where the server's best choice leads by a margin",
    "440 of 440 clear answers, 528 of 532 in all; would notice 7.6 % changed",
    "Give some 300 photos or texts of your own: half of them are judged on, and 149 without a"
    " change are what a pass of an 8-bit file takes.",
    "Without it the PyTorch module behind the packaged processing stands in, and every report says",
    "yes, used only after its own proof",
    "environments of other tools, for other routes (convert --via)",
    "Every command that ends by itself takes --json.",
    "inside an app: Wrapper and ONNX Runtime",
    "not expected yet: worker process groups are POSIX",
    "A workspace is private and may hold your inputs (the report shows the worst of them); a"
    " package holds only what spec/bundle.md lists, never a file from --data.",
    "Your own model is a factory that takes no argument and returns (module, example_inputs)",
    "a gate that cannot be talked round",
    "is the point of it",
    "38 independent photos can show 7.6 % of changed answers at best",
)

SOURCES = (
    "A source is exported once; every format is made from that one export.",
    "This converts and is judged, but cannot be packaged: its weights are drawn at random, so it is"
    " sure of nothing, and no input makes a golden case (EDGE-VALIDATE-009).",
    "The folder from which you call edgeserve is appended to sys.path: your modules are found, and"
    " none of them can stand before an installed package.",
    "The module is put on the CPU and in eval mode, half precision weights become float32; where"
    " that changed something, the report has a note. It is run on its examples before anything"
    " else.",
    "A Python constant stays what it is in the examples.",
    "One example is enough for a dynamic batch: the trace is made with two, your example is kept as"
    " it is.",
    "None is left out; anything but tensors is refused.",
    "what an output holds where one word says it",
    "class names by index, without control characters (EDGE-CONVERT-084); equal and empty ones are"
    " noted",
    "one in which padding was tried and changes nothing: a length with a mask, a convolution over"
    " time",
    "Only where nothing changes are files of fixed sizes fed that way (padded in the signature).",
    "Rows of zeros are tried by themselves, for a tokenizer's text too: most text encoders spread"
    " their attention over all places, padding included, where a mask hides every one of them.",
    "The lengths are kept, and a row of zeros is never padded",
    "First everything is fixed; where that works, the dimensions are opened again one after the"
    " other, in the order in which they are declared, and what can stay open does: a batch, where"
    " only a length cannot vary.",
    "It is refused in any case where fixed sizes do not help either, or where the example's size is"
    " none that was declared.",
    "The same answers, but tensors or attributes have changed: they are given other content, and"
    " the module other inputs.",
    "torch.jit.trace is none of them: it keeps the path that the example's values take without a"
    " word, and every later comparison is made with that program.",
    "A model of one text names its tokenizer, a tokenizer.json of the library tokenizers, as an"
    " asset; each input takes one of its rows.",
    "Networks of a text and a picture, or that continue a text or write one down, need a factory"
    " (-068).",
    "the folder's own file where transformers makes just that pipeline of it, else what it makes,"
    " written down",
    "a difference is refused (-070), and so is a tokenizer of Python code, or none: transformers"
    " makes an empty one of that, in silence.",
    "or code of its own that comes out differently, is refused by name (-069). So 27 of the 94"
    " processors of transformers 5.24 are carried over as they are by default",
    "The exported program answers as transformers: the same kernels on the same numbers.",
    "The fp32 artifact is the same graph with the same names, without what others wrote about it"
    " (documentation, tool names, properties that may hold paths and names of people)",
    "The first axis is the batch where a batch of two gives answers of two, which is tried.",
    "Nothing is supposed of the result: it is run beside ONNX Runtime on the examples and on"
    " further inputs, and what is off by more than rounding is refused",
    "Their sizes are those of the examples: fix the file's own where you want others.",
    "takes one way to a format where several lead there",
    "Whether a Core ML package answers wrongly outside edgeserve shows on a Mac only.",
)

WRAPPER = (
    "That is all an app needs.",
    "The Wrapper runs whatever is fastest on this very device and answers the golden cases as the"
    " server does.",
    "named model tensors, batch axis included; no processing before or after",
    "Whatever a file is fixed to, callers see the source's signature: a TFLite file that takes one"
    " text of 16, 32, ... 256 tokens as int32 is fed texts, lists and dicts of int64 like the ONNX"
    " file beside it.",
    "What the gate called pass comes first; only when none of those holds here, what it called"
    " degraded; then what it called unproven.",
    "One wrong answer rules a candidate out: the cases were chosen so that no correct chip can flip"
    " them.",
    "Trials are made in one, with a time limit, as soon as there is something to compare or to"
    " fear",
    "When an entry is found at the next start, the process died in the middle: that candidate is"
    " tried again only when nothing else holds",
    "stopping a run in the middle would only turn a late answer into none.",
    "not in this version: giving it raises EDGE-WRAPPER-002",
)

PIPELINE = (
    "seal what passed; the only thing that leaves the workspace",
    "A worker that crashes, hangs or runs out of memory costs one cell, never the command",
    "The reference answers a data set once; its key is the reference, the model's identity and the"
    " hash of every input.",
    "The gate's word is kept as long as artifact, answers and limits are the same.",
    "convert judges by itself: a [validate] table is for judging once more, with other data or"
    " golden",
    "bundle and report for what is made",
    "A file that validate refuses stays refused, and exit 1, until convert makes it anew; later"
    " runs say when it was refused and against which reference.",
    "Exit 1 where a verdict fell, or where more clear answers change than chance explains (Fisher's"
    " exact test over the effective numbers of inputs, one-sided, 5 %).",
)

HELP = (
    "What the outputs mean.",
    "Formats, comma-separated.",
    "Precisions, comma-separated.",
    "A size that cannot vary as declared: fixed, and said (auto), or refused",
    "Take this way to a format",
    "Keep nothing unless all is kept.",
    "Exit 1 unless every artifact reaches it.",
    "Processing before the model.",
    "Workspace to make or grow.",
    "Ask the gate again: other data, another reference, other limits",
    "Seal what passed into one file that the Wrapper opens.",
    "Tell the longer story of an error code.",
    "Make an environment for a tool that cannot live beside ours.",
    "Where a request names none.",
    "What the first waits for others.",
    "Longest body, also unpacked.",
    "Of an hour of this machine.",
    "Runs side by side; else measured.",
    "A model that stays loaded.",
    "Its key, PEM.",
    "Still answer so long after SIGTERM.",
    "Where to measure.",
)

MESSAGES = (
    "decides as the reference",
    "Ray is not to be had",
    "An output stands still",
    "A constant of the reference is another one in the file",
    "Scores lie at their ends",
    "answers the same to every input, and the model does not",
    "the reference's own answers move by",
    "of their scale with its rounding",
    "by the pace of the last ones",
    "one that is called otherwise by now",
    "left alone after failures",
    "true labels: the reference's answers are the measure",
    "any other than where this ran",
    "Nothing may ship yet.",
    "What this report rests on",
    "mend the function",
    "give yourself the right to read it",
    "leave the route out, and they are tried in order",
)

#: Private words whose field terms stand in ``docs/glossary.md``, wherever users read.
PRIVATE = (
    "clear answer",
    "would notice",
    "inner tensor",
    "stands still",
    "stand still",
    "trembl",
    "turned away",
    "known harm",
    "smallest harm",
    "minimum harm",
    "put out to make room",
)

SENTENCES = (*README, *SOURCES, *WRAPPER, *PIPELINE, *HELP, *MESSAGES)

#: Folders of the product, and pages and templates that users read.
PRODUCT = ("src", "backends", "convert", "measure", "package", "profiles", "report", "serve")
PRODUCT += ("validate", "wrapper", "android-demo", "web-demo")
PAGES = ("docs", "spec", "README.md", "CHANGELOG.md", "CONTRIBUTING.md")
KINDS = {".py", ".md", ".toml", ".j2", ".html", ".ts", ".js", ".kt", ".swift"}


def plain(text: str) -> str:
    """A text without markup, line breaks, comment signs and case, as it is compared."""
    text = re.sub(r"\\\n", "", text)
    text = re.sub(r"(?m)^\s*(?:#:?|//|\*)\s?", " ", text)
    text = text.replace("\\", "").replace("\u00a0", " ").replace("\u2019", "'")
    return re.sub(r"\s+", " ", re.sub(r"[`*|]", "", text)).casefold()


def strings(text: str) -> Iterator[str]:
    """Each string of a Python source, joined as the parser joins it; {} for what is filled in."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            parts = (p.value if isinstance(p, ast.Constant) else "{}" for p in node.values)
            yield "".join(map(str, parts))


def found(sentences: tuple[str, ...], path: Path, text: str) -> list[str]:
    """The sentences of a list that a file holds."""
    whole = plain(text)
    if path.suffix == ".py":
        whole = "\n".join([whole, *map(plain, strings(text))])
    return [sentence for sentence in sentences if plain(sentence) in whole]


@pytest.fixture(scope="module")
def product(texts: Mapping[Path, str]) -> Mapping[Path, str]:
    kept = {p: t for p, t in texts.items() if p.parts[0] in PRODUCT + PAGES and p.suffix in KINDS}
    assert len(kept) > 400
    return kept


def test_no_sentence_that_was_read_twice_is_left(product: Mapping[Path, str]) -> None:
    left = [f"{p}: {said}" for p, t in product.items() for said in found(SENTENCES, p, t)]
    assert not left, "\n".join(left)


def test_private_words_are_gone_where_users_read(product: Mapping[Path, str]) -> None:
    pages = {p: t for p, t in product.items() if p.parts[0] in PAGES or p.suffix != ".py"}
    left = [f"{p}: {said}" for p, t in pages.items() for said in found(PRIVATE, p, t)]
    assert not left, "\n".join(left)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.md", "This is\n**the** point: Nothing may\nship yet."),
        ("a.py", '"""Of an\n# hour of this machine."""'),
        ("a.py", 'x = (f"{y} is "\n     "the point of it")'),
        ("a.toml", 'title = """Scores lie \\\nat their ends"""'),
        ("a.j2", "<h2>What this report   rests on</h2>"),
    ],
)
def test_a_planted_sentence_is_found(path: str, text: str) -> None:
    assert len(found(SENTENCES, Path(path), text)) == 1


def test_sentences_are_long_enough_to_mean_something() -> None:
    assert all(len(sentence) >= 10 for sentence in SENTENCES)
    assert len(SENTENCES) == len(set(SENTENCES))
