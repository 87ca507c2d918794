"""Tables behind a network or in an archive: a store over a bucket, and the buckets there are."""

from typing import TYPE_CHECKING

from blztable.late import door

if TYPE_CHECKING:
    from blztable.storage.remote import file_bucket as file_bucket
    from blztable.storage.remote import object_bucket as object_bucket
    from blztable.storage.remote import one_file as one_file
    from blztable.storage.remote import options as options
    from blztable.storage.remote import store as store

__getattr__ = door(__name__)
