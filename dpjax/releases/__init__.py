"""The owner's path: tables, releases and their files, several parties; no JAX."""

from dpjax._base.lazy import attach

_MODULES = {
    "Privacy": "dpjax.releases.release",
    "PrivateQuantile": "dpjax.releases.release",
    "Release": "dpjax.releases.release",
    "load_parties": "dpjax.releases.parties",
}
__getattr__, __dir__ = attach(__name__, _MODULES)
