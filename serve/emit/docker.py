"""Files for `docker build`: an image for processors, one for CUDA, everything in them pinned."""

from __future__ import annotations

import json
import platform
import re
from importlib import metadata

from edgeserve import __version__
from edgeserve.installation import DISTRIBUTION
from edgeserve.serve.emit.deployment import BUNDLES, DeploymentSubject, arguments

#: ONNX Runtime for CUDA, which brings CUDA's own libraries: the host needs the driver alone.
_CUDA = "onnxruntime-gpu[cuda,cudnn]==1.31.1"
_HOME = "/opt/edgeserve"
#: Where those libraries lie below an environment's packages.
_CUDA_LIBRARIES = ("nvidia/cu13/lib", "nvidia/cudnn/lib")
_USER = 10001


def docker(subject: DeploymentSubject) -> dict[str, bytes]:
    """Files by name, the bundles themselves left out.

    Versions are those of this environment: what the bundles were tried with here is what the image
    holds.
    """
    pinned = _pinned(subject.extras)
    usual = [one for one in pinned if not one.startswith("onnxruntime-gpu")]
    without = [one for one in usual if not re.match(r"onnxruntime\b", one)]
    return {
        "Dockerfile": _dockerfile(subject, "requirements.txt", cuda=False),
        "Dockerfile.cuda": _dockerfile(subject, "requirements-cuda.txt", cuda=True),
        "requirements.txt": _file(usual),
        "requirements-cuda.txt": _file([*without, _CUDA]),
        ".dockerignore": b"*\n!bundles\n!wheels\n!requirements*.txt\n",
        "wheels/README": b"Wheels that your package index lacks, such as edgeserve's own.\n",
    }


def health(subject: DeploymentSubject) -> list[str]:
    """The command by which a container finds out whether it is ready."""
    scheme = subject.scheme.lower()
    trust = "" if scheme == "http" else ", context=__import__('ssl')._create_unverified_context()"
    url = f"{scheme}://127.0.0.1:{subject.options.port}/v2/health/ready"
    call = f"import urllib.request as r; r.urlopen('{url}', timeout=2{trust})"
    return ["python", "-c", call]


def _dockerfile(subject: DeploymentSubject, requirements: str, cuda: bool) -> bytes:
    base = f"python:{platform.python_version()}-slim-bookworm"
    lines = [
        f"# {', '.join(m.name for m in subject.manifests)} behind edgeserve {__version__}"
        + (", on CUDA (run with --gpus all)." if cuda else "."),
        f"FROM {base} AS build",
        f"RUN python -m venv {_HOME}",
        "COPY wheels /wheels",
        f"COPY {requirements} /requirements.txt",
        f"RUN {_HOME}/bin/pip install --no-cache-dir --find-links /wheels -r /requirements.txt",
        "",
        f"FROM {base}",
        f"RUN useradd --uid {_USER} --no-create-home --shell /usr/sbin/nologin edgeserve",
        f"COPY --from=build {_HOME} {_HOME}",
        f"COPY bundles {BUNDLES}",
        f"ENV PATH={_HOME}/bin:$PATH PYTHONDONTWRITEBYTECODE=1 HOME=/tmp XDG_CACHE_HOME=/tmp/cache",
        *(_cuda_environment() if cuda else ()),
        f"USER {_USER}:{_USER}",
        f"EXPOSE {subject.options.port}"
        + (f" {subject.options.grpc_port}" if subject.options.grpc_port else ""),
        "STOPSIGNAL SIGTERM",
        "HEALTHCHECK --interval=10s --timeout=3s --start-period=120s --retries=3 \\",
        f"  CMD {json.dumps(health(subject))}",
        'ENTRYPOINT ["edgeserve"]',
        f"CMD {json.dumps(arguments(subject))}",
    ]
    return _file(lines)


def _cuda_environment() -> list[str]:
    version = ".".join(platform.python_version_tuple()[:2])
    site = f"{_HOME}/lib/python{version}/site-packages"
    found = ":".join(f"{site}/{part}" for part in _CUDA_LIBRARIES)
    return [
        f"ENV LD_LIBRARY_PATH={found}",
        "ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility",
    ]


def _pinned(extras: tuple[str, ...]) -> list[str]:
    """The distribution with these extras and all that they bring, as installed here."""
    first = [line for line in metadata.requires(DISTRIBUTION) or [] if _applies(line, extras)]
    found = {DISTRIBUTION: f"{DISTRIBUTION}=={__version__}"}
    left = list(first)
    while left:
        line = left.pop()
        name = _name(line)
        if name in found:
            continue
        try:
            found[name] = f"{name}=={metadata.version(name).partition('+')[0]}"
            left += [one for one in metadata.requires(name) or [] if _applies(one, ())]
        except metadata.PackageNotFoundError:
            if line in first:  # what others would bring and is not here, nobody needs here
                found[name] = line.partition(";")[0].strip()
    return sorted(found.values())


def _applies(line: str, extras: tuple[str, ...]) -> bool:
    """Whether a line of a package's metadata is meant without extras, or with one of these."""
    wanted = re.search(r"extra\s*==\s*['\"]([^'\"]+)['\"]", line)
    return wanted is None or wanted[1] in extras


def _name(line: str) -> str:
    found = re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*", line)
    assert found
    return re.sub(r"[-_.]+", "-", found[0]).lower()


def _file(lines: list[str]) -> bytes:
    return ("\n".join(lines) + "\n").encode()
