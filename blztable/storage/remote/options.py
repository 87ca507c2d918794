"""Options: the names that pandas and fsspec give to the settings of a remote store.

Each name is that of one setting of obstore; an unknown one is refused. Only the names of
`PUBLIC` are no secrets, and may leave the process. Knows no library.
"""

import re
from collections.abc import Mapping
from typing import Any

# By kind of store, the setting of each name.
_S3 = {
    "key": "access_key_id",
    "secret": "secret_access_key",
    "token": "session_token",
    "anon": "skip_signature",
    "endpoint_url": "endpoint",
    "region": "region",
    "region_name": "region",
    "requester_pays": "request_payer",
}
_GCS = {
    "token": "service_account_path",
    "anon": "skip_signature",
}
_AZURE = {
    "account_name": "account_name",
    "account_key": "account_key",
    "sas_token": "sas_token",
    "tenant_id": "tenant_id",
    "client_id": "client_id",
    "client_secret": "client_secret",
    "anon": "skip_signature",
    "endpoint_url": "endpoint",
}
SCHEMES: dict[str, dict[str, str]] = {
    "s3": _S3,
    "s3a": _S3,
    "gs": _GCS,
    "gcs": _GCS,
    "az": _AZURE,
    "abfs": _AZURE,
    "abfss": _AZURE,
    "adl": _AZURE,
    "azure": _AZURE,
    "http": {"headers": "default_headers"},
    "https": {"headers": "default_headers"},
}
# Variables of the environment that have the address of a server, by scheme.
ENDPOINTS = dict.fromkeys(
    ("s3", "s3a"), ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
)
# No user and no query, which may be secrets: another process gets it.
_ENDPOINT = re.compile(r"https?://[^\s/@?#]+(/[^\s@?#]*)?", re.IGNORECASE)
PUBLIC = {"anon", "endpoint_url", "region", "region_name", "requester_pays", "account_name"}


def settings(scheme: str, options: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the settings that options of a scheme stand for; ValueError names an unknown one."""
    known = SCHEMES[scheme]
    options = dict(options)
    # As boto and s3fs have them.
    inner = options.pop("client_kwargs", {}) if "endpoint_url" in known else {}
    unknown = sorted({*options, *inner} - known.keys())
    if unknown:
        raise ValueError(
            f"{name}: storage_options has no {unknown[0]!r} for {scheme}; pass some of "
            f"{', '.join(known)}"
        )
    given = {one: value for one, value in {**inner, **options}.items() if value is not None}
    for one, value in given.items():
        if isinstance(value, str) and not value.isprintable():
            raise ValueError(
                f"{name}: storage_options: {one!r} has a line break or another control character; "
                "remove it"
            )
    endpoint = given.get("endpoint_url")
    if endpoint is not None and not _ENDPOINT.fullmatch(str(endpoint)):
        raise ValueError(
            f"{name}: storage_options: 'endpoint_url' is no address such as https://host:9000; "
            "credentials are options of their own"
        )
    return {known[one]: value for one, value in given.items()}


def public(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are no secrets."""
    inner = options.get("client_kwargs", {})
    return {one: value for one, value in {**inner, **options}.items() if one in PUBLIC}
