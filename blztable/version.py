"""The version of the package, for its metadata and the manifests it writes."""

VERSION = "0.1.0"
