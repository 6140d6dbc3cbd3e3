"""The page on profiles lists what there is."""

from __future__ import annotations

from pathlib import Path

from edgeserve.profiles import devices, workloads
from edgeserve.types.profile import DeviceProfile, WorkloadProfile
from edgeserve.types.reports import Limits

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "profiles.md").read_text("utf-8")


def test_every_shipped_profile_is_listed() -> None:
    for name in (*devices(), *workloads()):
        assert f"`{name}`" in PAGE


def test_every_field_is_explained() -> None:
    fields = {*DeviceProfile.__struct_fields__, *WorkloadProfile.__struct_fields__} - {"limits"}
    fields |= {f"limits.{name}" for name in Limits.__struct_fields__}
    assert [name for name in sorted(fields) if f"`{name}`" not in PAGE] == []
