"""A new step on pictures is one file: what is made of it, in a process that finds it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PAD = '''
"""pad/1: borders around a picture."""

from edgeserve.types.steps import PixelStep, Placement

__all__ = ["Pad"]


class Pad(PixelStep, frozen=True, tag_field="step", tag="pad/1"):
    """Borders of one colour: ``top`` rows and ``left`` columns, and as many behind."""

    top: int
    left: int
    fill: tuple[int, int, int] = (9, 8, 7)

    def apply(self, image):
        from PIL import Image

        height, width = self.out_size((image.height, image.width))
        canvas = Image.new("RGB", (width, height), self.fill)
        canvas.paste(image, (self.left, self.top))
        return canvas

    def out_size(self, size):
        return (size[0] + 2 * self.top, size[1] + 2 * self.left) if size else None

    def placement(self, size):
        return Placement((1.0, 1.0), (self.top, self.left), self.out_size(size))
'''
USE = """
import sys

import numpy as np

import edgeserve.processing.steps

edgeserve.processing.steps.__path__.append(sys.argv[1])

from edgeserve.errors import ProcessingError
from edgeserve.processing import Processor
from edgeserve.tasks.detection import Detect
from edgeserve.types.base import decode, encode
from edgeserve.types.processing import Processing
from edgeserve.types.steps import Slice
from edgeserve.types.tensors import Signature, TensorSpec

steps = b'{"step":"decode/1"},{"step":"pad/1","top":3,"left":5},{"step":"layout/1","order":"CHW"}'
boxes, scores = Slice("boxes"), Slice("scores")
detect = encode(Detect(boxes=boxes, scores=scores))
data = b'{"inputs":[{"name":"x","steps":[' + steps + b']}],"outputs":[' + detect + b"]}"
processing = decode(data, Processing)
assert decode(encode(processing), Processing) == processing
outputs = (
    TensorSpec(name="boxes", dtype="float32", shape=(1, 2, 4)),
    TensorSpec(name="scores", dtype="float32", shape=(1, 2, 1)),
)


def processor(steps):
    spec = TensorSpec(name="x", dtype="uint8", shape=(1, 3, 26, 40))
    return Processor(steps, Signature(inputs=(spec,), outputs=outputs), "object-detection")


photo = np.random.default_rng(0).integers(0, 256, (20, 30, 3)).astype(np.uint8)
ready = processor(processing)
feed = ready.batch([ready.prepare(photo)])
wanted = np.full((26, 40, 3), (9, 8, 7), np.uint8)
wanted[3:23, 5:35] = photo
assert np.array_equal(feed["x"][0], wanted.transpose(2, 0, 1))

found = np.array([[[8, 7, 25, 13], [0, 0, 40, 26]]], np.float32)  # the second one: all there is
given = {"boxes": found, "scores": np.array([[[0.9], [0.8]]], np.float32)}
(record,) = ready.finish(given, feed)
assert record.boxes.tolist() == [[3, 4, 20, 10], [0, 0, 30, 20]]

bad = decode(data.replace(b'{"step":"decode/1"},', b""), Processing)
try:
    processor(bad)
except ProcessingError as error:
    assert "pad" in str(error) and "center_crop or pad or resize" in str(error), error
else:
    raise AssertionError("steps without decode")
"""


def test_a_step_is_one_file(tmp_path: Path) -> None:
    (tmp_path / "pad.py").write_text(PAD)
    done = subprocess.run(
        [sys.executable, "-c", USE, str(tmp_path)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
