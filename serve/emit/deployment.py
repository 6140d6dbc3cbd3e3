"""`Deployment`: what is to be written down, checked; and what every kind of file needs of it."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from pathlib import Path

from edgeserve import backends
from edgeserve.bundle import open_model
from edgeserve.errors import ServeError
from edgeserve.options import flag
from edgeserve.processing.steps.tokenize import Tokenize
from edgeserve.serve.options import MB, EmitSettings, ServeOptions
from edgeserve.types.manifest import Manifest

KINDS = ("docker", "kubernetes", "kserve")
#: Where bundles lie in an image, and where secrets are mounted.
BUNDLES, _KEYS, _TLS = "/bundles", "/etc/edgeserve/keys", "/etc/edgeserve/tls"
#: Where KServe puts what it fetched.
_FETCHED = "/mnt/models"
#: A process of the runtimes without a model, and how many times its file a model takes, roughly.
_BASE_MB, _TIMES = 384, 4


@dataclass(frozen=True, kw_only=True)
class Deployment(EmitSettings, ServeOptions):
    """An endpoint's options, and how it is to run elsewhere; checked.

    Options hold inside the container. ``keys`` and ``tls_cert`` say that there are such files; they
    come from secrets, and what lies at these paths here is not read.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.replicas < 1:
            raise deployment_error("replicas", "1 or more", f"{self.replicas}")
        if self.max_replicas < self.replicas:
            wanted = f"{self.replicas} or more, the replicas that there are always"
            raise deployment_error("max_replicas", wanted, f"{self.max_replicas}")
        if not 0 < self.cpus < float("inf"):
            raise deployment_error("cpus", "a number above 0", f"{self.cpus}")
        if self.gpus < 0 or not float(self.gpus).is_integer():
            raise deployment_error("gpus", "a whole number from 0 up", f"{self.gpus}")
        if self.port == 0:
            wanted = "a port from 1 up, which the files name"
            raise deployment_error("port", wanted, "0: any free one")
        if self.image and not re.fullmatch(r"[a-z0-9][A-Za-z0-9._/:@-]{0,254}", self.image):
            raise deployment_error("image", "the name of an image", repr(self.image))
        if self.storage and not re.fullmatch(r"[a-z0-9+-]+://[!-~]+", self.storage):
            wanted = "an address such as s3://bucket/tagger.edge"
            raise deployment_error("storage", wanted, self.storage)
        if self.storage and len(self.bundles) > 1:
            raise deployment_error("storage", "one bundle to fetch", f"{len(self.bundles)} bundles")


class DeploymentSubject:
    """What is deployed.

    Attributes:
        options: The deployment as requested.
        manifests: Of the bundles, in order.
        name: What objects are called: a DNS label.
        image: The image's name.
        memory_mb: What a pod asks for, by an estimate.
        scheme: "HTTPS" with TLS, else "HTTP".
        secrets: Mounted files: path in the container by the secret's name.
    """

    def __init__(self, options: Deployment, manifests: tuple[Manifest, ...]) -> None:
        self.options, self.manifests = options, manifests
        self.name = _label(manifests[0].name)
        self.image = options.image or f"{self.name}:{manifests[0].version}"
        if options.gpus and not options.image:
            self.image += "-cuda"
        size = sum(Path(path).stat().st_size for path in options.bundles)
        self.memory_mb = options.memory_mb or _BASE_MB + _TIMES * -(-size // MB)
        self.scheme = "HTTPS" if options.tls_cert else "HTTP"
        mounted = (("keys", _KEYS, options.keys), ("tls", _TLS, options.tls_cert))
        self.secrets = {f"{self.name}-{what}": path for what, path, there in mounted if there}

    @property
    def extras(self) -> tuple[str, ...]:
        """Extras of edgeserve that an image needs."""
        formats = {a.format for m in self.manifests for a in m.artifacts}
        runtimes = {
            each.extra
            for each in backends.installed()
            if each.format in formats and each.extra and "linux" in each.targets
        }
        steps = [s for m in self.manifests for way in m.processing.inputs for s in way.steps]
        texts = any(isinstance(step, Tokenize) for step in steps)
        return ("serve", *sorted(runtimes), *(("text",) if texts else ()))


def subject_of(options: Deployment) -> DeploymentSubject:
    """Read the bundles.

    Raises:
        ServeError: EDGE-SERVE-051, one is no sealed bundle, or two files or models have one name;
            -003.
        BundleError: a bundle breaks its rules.
    """
    manifests: list[Manifest] = []
    for path in options.bundles:
        if not Path(path).is_file():
            raise deployment_error(f"bundle {path}", "a sealed bundle", "a workspace, or nothing")
        with open_model(path) as model:
            manifests.append(model.manifest)
    for what, names in (
        ("names of bundles", [Path(path).name for path in options.bundles]),
        ("names of models", [manifest.name for manifest in manifests]),
    ):
        if len(set(names)) < len(names):
            raise deployment_error(what, "different ones", ", ".join(names))
    if other := set(options.pinned) - {manifest.name for manifest in manifests}:
        wanted = f"models of {', '.join(m.name for m in manifests)}"
        raise deployment_error("pin", wanted, min(other))
    return DeploymentSubject(options, tuple(manifests))


def arguments(subject: DeploymentSubject, fetched: bool = False) -> list[str]:
    """What `edgeserve` is called with in a container.

    Args:
        subject: What is deployed.
        fetched: Whether the bundle is put there by KServe.
    """
    options, folder = subject.options, _FETCHED if fetched else BUNDLES
    words = ["serve", *(f"{folder}/{Path(path).name}" for path in options.bundles)]
    words += ["--host", "0.0.0.0", "--port", str(options.port)]
    for field in dataclasses.fields(ServeOptions):
        value = getattr(options, field.name)
        if field.name not in _WRITTEN_SEPARATELY and value != field.default:
            called = flag(ServeOptions, field.name)
            if value is False:
                words.append(called.replace("--", "--no-", 1))
            elif value is True:
                words.append(called)
            else:
                for each in value if isinstance(value, tuple) else (value,):
                    words += [called, str(each)]
    if options.keys:
        words += ["--keys", f"{_KEYS}/keys"]
    elif not options.no_keys:
        words.append("--no-keys")  # it is for the cluster's network to say who reaches a container
    if options.tls_cert:
        words += ["--tls-cert", f"{_TLS}/tls.crt", "--tls-key", f"{_TLS}/tls.key"]
    return words


def deployment_error(what: str, wanted: str, got: str) -> ServeError:
    """The coded error for what cannot be written down."""
    return ServeError(
        "EDGE-SERVE-051",
        f"deployment, {what}",
        wanted=wanted,
        got=got,
        hint="docs/guide/scale-out.md says what each kind of file holds",
    )


_WRITTEN_SEPARATELY = ("bundles", "host", "port", "keys", "tls_cert", "tls_key", "memory_mb")


def _label(name: str) -> str:
    """A DNS label: what Kubernetes takes as a name everywhere."""
    label = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:50].strip("-")
    return label if label[:1].isalpha() else f"model-{label}".strip("-")
