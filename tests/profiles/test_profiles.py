"""Profiles that ship are complete and sane; a user's own are checked to the last field."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

import pytest

from edgeserve import backends
from edgeserve.errors import ProfileError
from edgeserve.profiles import device, devices, read_device, read_workload, workload, workloads
from edgeserve.types.base import decode, encode
from edgeserve.types.profile import DeviceProfile, WorkloadProfile
from edgeserve.types.reports import Limits


def shipped(folder: str, name: str) -> str:
    return (resources.files("edgeserve.profiles") / folder / f"{name}.toml").read_text("utf-8")


def test_enough_profiles_ship() -> None:
    assert len(devices()) >= 8
    assert len(workloads()) >= 3
    assert {d.kind for d in devices().values()} >= {"android", "ios", "web", "linux", "macos"}


def test_each_file_is_listed_sorted_under_its_own_name() -> None:
    for folder, listed in (("devices", devices()), ("workloads", workloads())):
        stems = sorted(
            f.name.removesuffix(".toml")
            for f in (resources.files("edgeserve.profiles") / folder).iterdir()
        )
        assert list(listed) == stems
        assert [profile.name for profile in listed.values()] == stems


@pytest.mark.parametrize("name", list(devices()))
def test_device_round_trips_and_cites_its_facts(name: str) -> None:
    profile = device(name)
    assert decode(encode(profile), DeviceProfile) == profile
    assert len(profile.source) > 40
    assert not re.search(r"https?://", profile.source)
    assert set(profile.delegates) == set(profile.formats)


@pytest.mark.parametrize("name", list(devices()))
def test_delegates_are_called_as_their_backends_call_them(name: str) -> None:
    """One vocabulary: no alias stands in a profile, so that a word means one thing everywhere."""
    profile = device(name)
    for format, delegates in profile.delegates.items():
        assert set(delegates) <= set(backends.get(format).all_delegates), format
        assert not set(delegates) & set(backends.get(format).simulated), format
    platform = {"macos": "ios", "windows": "linux"}.get(profile.kind, profile.kind)
    extra = {("macos", "tflite"), ("ios", "tflite")}
    for format in profile.formats:
        assert platform in backends.get(format).targets or (profile.kind, format) in extra


@pytest.mark.parametrize("name", list(workloads()))
def test_workload_round_trips(name: str) -> None:
    profile = workload(name)
    assert decode(encode(profile), WorkloadProfile) == profile
    assert profile.limits.pass_flips <= profile.limits.degraded_flips


def test_facts_that_decide_int8() -> None:
    # Arm's technical reference manuals: A53 and A72 are ARMv8.0 without it, A76 and A78 have it.
    assert "dotprod" not in device("raspberry-pi-4").features
    assert "dotprod" not in device("android-low").features
    assert "dotprod" in device("raspberry-pi-5").features
    assert "dotprod" in device("android-mid").features
    # Saturating U8S8 is a matter of AVX2 without VNNI.
    assert not [f for f in device("kiosk-avx2").features if "vnni" in f]
    assert "avx512_vnni" in device("x86-vnni").features


def test_interactive_holds_the_default_limits_and_safety_tighter_ones() -> None:
    assert workload("interactive").limits == Limits()
    safety, preview = workload("safety").limits, workload("preview").limits
    assert safety.pass_flips < Limits().pass_flips < preview.pass_flips
    assert safety.tensor < Limits().tensor


@pytest.mark.parametrize(
    ("asked", "meant"),
    [("pixel8", "pixel-8"), ("Raspberry-Pi-5", "raspberry-pi-5"), ("iphone-13", "iphone-12")],
)
def test_unknown_device_names_close_ones(asked: str, meant: str) -> None:
    with pytest.raises(ProfileError) as caught:
        device(asked)
    assert caught.value.code == "EDGE-PROFILE-001"
    assert meant in caught.value.hint


def test_unknown_workload_without_a_close_one_points_to_the_list() -> None:
    with pytest.raises(ProfileError, match="interactive") as caught:
        workload("xyzzy")
    assert "edgeserve profiles" in caught.value.hint


def test_a_users_own_file_is_read_by_path(tmp_path: Path) -> None:
    text = shipped("devices", "pixel-8").replace('"pixel-8"', '"my-phone"')
    (tmp_path / "my-phone.toml").write_text(text)
    assert device(str(tmp_path / "my-phone.toml")).cores == device("pixel-8").cores


def test_a_missing_file_and_bad_utf8_are_coded(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_bytes(b"name = '\xff'")
    for path in (tmp_path / "none.toml", tmp_path / "x.toml"):
        with pytest.raises(ProfileError) as caught:
            workload(str(path))
        assert caught.value.code == "EDGE-PROFILE-002"


def test_not_toml_names_the_line() -> None:
    with pytest.raises(ProfileError, match="line 2") as caught:
        read_device('name = "x"\ncores = = 2\n', "x")
    assert caught.value.code == "EDGE-PROFILE-002"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("cores = 5", "cores = 0", "cores"),
        ("cores = 5", 'cores = "5"', "cores"),
        ("cores = 5", "cores = 5\ncoers = 5", "coers"),
        ("cores = 5\n", "", "cores"),
        ('kind = "android"', 'kind = "amiga"', "amiga"),
        ('formats = ["tflite", "onnx"]', 'formats = ["tflite", "onnx", "coreml"]', "delegates"),
        ('formats = ["tflite", "onnx"]', 'formats = ["tflite", "tflite"]', "formats"),
        ("memory_mb = 2048", "memory_mb = -1", "memory_mb"),
        ('int8_activations = "s8"', 'int8_activations = "s9"', "s9"),
        ('tflite = ["gpu", "cpu"]', "tflite = []", "delegates"),
        ('title = "Google Pixel 8"', 'title = " "', "title"),
        ('name = "pixel-8"', 'name = "Pixel 8"', "Pixel 8"),
        ('name = "pixel-8"', 'name = "pixel-9"', "pixel-9"),
    ],
)
def test_a_wrong_device_field_is_refused(old: str, new: str, says: str) -> None:
    text = shipped("devices", "pixel-8")
    assert old in text
    with pytest.raises(ProfileError, match=says) as caught:
        read_device(text.replace(old, new), "pixel-8")
    assert caught.value.code == "EDGE-PROFILE-003"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("pass_flips = 0.005", "pass_flips = 0.5", "pass_flips"),
        ("pass_flips = 0.005", "pass_flips = nan", "pass_flips"),
        ("tensor = 0.0001", "tensor = 0.0", "above 0"),
        ("tensor = 0.0001", "tensor = nan", "above 0"),
        ("scale_floor = 0.001", "scale_floor = inf", "finite"),
        ("deadline_ms = 100.0", "deadline_ms = nan", "deadline_ms"),
        ("batch = [1]", "batch = []", "batch"),
        ("batch = [1]", "batch = [0]", "batch"),
        ("threads = 1", "threads = -1", "threads"),
        ("deadline_ms = 100.0", "deadline_ms = -1.0", "deadline_ms"),
        ("[limits]", "[limits]\nflips = 1", "flips"),
    ],
)
def test_a_wrong_workload_field_is_refused(old: str, new: str, says: str) -> None:
    text = shipped("workloads", "safety")
    assert old in text
    with pytest.raises(ProfileError, match=says) as caught:
        read_workload(text.replace(old, new), "safety")
    assert caught.value.code == "EDGE-PROFILE-003"


def test_threads_and_deadline_may_be_left_away() -> None:
    batch = workload("batch")
    assert batch.deadline_ms is None
    assert batch.threads is None
