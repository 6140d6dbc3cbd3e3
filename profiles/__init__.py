"""Device and workload profiles: what runs where, and what harm is allowed. Data, not code.

from edgeserve.profiles import device, workload

device("raspberry-pi-5").features  # ("neon", "fp16", "dotprod")
workload("safety").limits.pass_flips  # 0.005
"""

from edgeserve.profiles.load import device, devices, read_device, read_workload, workload, workloads

__all__ = ["device", "devices", "read_device", "read_workload", "workload", "workloads"]
