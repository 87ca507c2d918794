"""The local S3 server answers a real client as S3 does, counts what it is asked, and fails by rule.

The tests of tables in object stores stand on it.
"""

import asyncio
import re
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import chain
from urllib.error import HTTPError

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError, BaseError, GenericError, PreconditionError
from obstore.store import S3Store

from support.s3_server import BUCKET, Fault, S3Server, nth, share

KEYS = ["a", "dir", "dir/b", "dir/c", "dir/deep/d", "dir/é & <x>", "dir0", "e"]


def client(server, *, retries=0, timeout="10s", user="user", bucket=BUCKET):
    """Return an obstore of the server; by default it repeats no request."""
    moment = timedelta(milliseconds=1)
    return S3Store(
        bucket,
        endpoint=server.url,
        access_key_id=user,
        secret_access_key="secret",
        region="us-east-1",
        client_options={"allow_http": True, "timeout": timeout},
        retry_config={
            "max_retries": retries,
            "retry_timeout": timedelta(seconds=10),
            "backoff": {"init_backoff": moment, "max_backoff": moment, "base": 2},
        },
    )


def fetch(url, **headers):
    """Return status, headers and body of a plain request."""
    try:
        reply = urllib.request.urlopen(urllib.request.Request(url, headers=headers))
    except HTTPError as error:
        reply = error
    with reply:
        return reply.status, dict(reply.headers), reply.read()


class TestObjects:
    def test_an_object_comes_back_with_its_size_etag_and_time(self, s3):
        put = obstore.put(client(s3), "a/b c%2F+é", b"content")
        found = obstore.get(client(s3), "a/b c%2F+é")
        assert found.bytes() == b"content"
        assert found.meta["e_tag"] == put["e_tag"] == s3.keys["a/b c%2F+é"].etag
        assert found.meta["size"] == 7
        assert abs(found.meta["last_modified"].timestamp() - time.time()) < 60

    def test_head_says_what_get_says_without_the_bytes(self, s3):
        obstore.put(client(s3), "a", b"content")
        with s3.recorded() as log:
            assert obstore.head(client(s3), "a") == obstore.get(client(s3), "a").meta
        assert [(one.verb, one.sent) for one in log] == [("HEAD", 0), ("GET", 7)]

    def test_ranges_have_a_begin_and_an_end_or_only_one_of_them(self, s3):
        store, data = client(s3), bytes(range(100))
        obstore.put(store, "a", data)
        assert obstore.get_range(store, "a", start=10, length=20).to_bytes() == data[10:30]
        assert obstore.get_range(store, "a", start=90, length=50).to_bytes() == data[90:]
        assert obstore.get(store, "a", options={"range": {"offset": 95}}).bytes() == data[95:]
        assert obstore.get(store, "a", options={"range": {"suffix": 3}}).bytes() == data[-3:]
        assert fetch(f"{s3.url}/{BUCKET}/a", Range="bytes=-500")[2] == data
        assert fetch(f"{s3.url}/{BUCKET}/a", Range="bytes=100-")[0] == 416

    def test_the_size_of_the_whole_comes_with_a_range(self, s3):
        obstore.put(client(s3), "a", bytes(100))
        assert fetch(f"{s3.url}/{BUCKET}/a", Range="bytes=10-19")[1]["content-range"] == (
            "bytes 10-19/100"
        )

    def test_a_range_is_given_only_of_the_object_that_was_asked_for(self, s3):
        store = client(s3)
        old = obstore.put(store, "a", b"old")["e_tag"]
        assert obstore.get(store, "a", options={"if_match": old}).bytes() == b"old"
        obstore.put(store, "a", b"new")
        with pytest.raises(PreconditionError):
            obstore.get(store, "a", options={"if_match": old, "range": (0, 1)})

    def test_what_has_not_changed_is_not_sent_again(self, s3):
        etag = obstore.put(client(s3), "a", b"content")["e_tag"]
        status, headers, body = fetch(f"{s3.url}/{BUCKET}/a", **{"If-None-Match": etag})
        assert (status, headers["etag"], body) == (304, etag, b"")

    def test_missing_objects_and_buckets_are_told(self, s3):
        for call in (obstore.get, obstore.head):
            with pytest.raises(FileNotFoundError):
                call(client(s3), "missing")
        with pytest.raises(FileNotFoundError, match="NoSuchBucket"):
            obstore.put(client(s3, bucket="other"), "a", b"")

    def test_only_the_key_that_was_agreed_upon_has_access(self):
        with S3Server(access_key="mine") as server:
            obstore.put(client(server, user="mine"), "a", b"")
            with pytest.raises(BaseError, match="InvalidAccessKeyId"):
                obstore.put(client(server, user="yours"), "b", b"")
            assert list(server.keys) == ["a"]


class TestConditions:
    def test_one_of_many_creates_of_a_key_succeeds(self, s3):
        def create(number):
            try:
                obstore.put(client(s3), "a", b"%d" % number, mode="create")
            except AlreadyExistsError:
                return None
            return number

        with ThreadPoolExecutor(8) as pool:
            won = [number for number in pool.map(create, range(16)) if number is not None]
        assert [b"%d" % number for number in won] == [s3.keys["a"].data]

    def test_an_object_is_replaced_only_if_it_is_the_one_that_was_read(self, s3):
        store = client(s3)

        def put(data, **mode):
            return obstore.put(store, "a", data, **mode)["e_tag"]

        first = {"e_tag": put(b"first")}
        second = {"e_tag": put(b"second", mode=first)}
        with pytest.raises(PreconditionError):
            put(b"third", mode=first)
        put(b"third", mode=second)
        assert s3.keys["a"].data == b"third"
        obstore.delete(store, "a")
        with pytest.raises(PreconditionError):
            put(b"fourth", mode=second)

    def test_an_upload_in_parts_replaces_the_object_as_a_whole(self, s3):
        data = b"".join(b"%07d " % number for number in range(1_000_000))
        with s3.recorded() as log:
            obstore.put(client(s3), "a", data, chunk_size=5 << 20, use_multipart=True)
        assert s3.keys["a"].data == data
        assert len(log.of("POST")) == 2
        assert len(log.of("PUT")) > 1
        assert not s3.objects.uploads

    def test_an_upload_in_parts_has_conditions_when_it_is_completed(self, s3):
        place = f"{s3.url}/{BUCKET}/a"

        def post(query, body=b"", **headers):
            request = urllib.request.Request(place + query, body, headers, method="POST")
            try:
                with urllib.request.urlopen(request) as reply:
                    return reply.status, reply.read().decode()
            except HTTPError as error:
                with error:
                    return error.status, error.read().decode()

        upload = post("?uploads")[1].partition("<UploadId>")[2].partition("<")[0]
        part = urllib.request.Request(
            f"{place}?partNumber=1&uploadId={upload}", b"part", method="PUT"
        )
        urllib.request.urlopen(part).close()
        obstore.put(client(s3), "a", b"other")
        done = b"<C><Part><PartNumber>1</PartNumber><ETag>x</ETag></Part></C>"
        query = f"?uploadId={upload}"
        assert post(query, done, **{"If-None-Match": "*"})[0] == 412
        assert s3.keys["a"].data == b"other"
        assert post(query, done, **{"If-Match": s3.keys["a"].etag})[0] == 200
        assert s3.keys["a"].data == b"part"
        assert post(query, done)[0] == 404


class TestLists:
    @pytest.fixture
    def store(self, s3):
        for key in KEYS:
            obstore.put(client(s3), key, key.encode())
        return client(s3)

    def test_a_list_has_sizes_etags_and_times(self, s3, store):
        for found in obstore.list(store).collect():
            stored = s3.keys[found["path"]]
            assert found["size"] == len(stored.data)
            assert found["e_tag"] == stored.etag
            assert abs(found["last_modified"].timestamp() - stored.modified) < 0.002

    def test_a_list_is_in_order_below_a_prefix_and_behind_a_key(self, store):
        def listed(**options):
            return [one["path"] for one in obstore.list(store, **options).collect()]

        assert listed() == sorted(KEYS)
        assert listed(prefix="dir") == ["dir/b", "dir/c", "dir/deep/d", "dir/é & <x>"]
        assert listed(prefix="dir", offset="dir/c") == ["dir/deep/d", "dir/é & <x>"]

    def test_a_list_of_one_level_has_what_lies_deeper_as_prefixes(self, store):
        found = obstore.list_with_delimiter(store, "dir")
        assert [one["path"] for one in found["objects"]] == ["dir/b", "dir/c", "dir/é & <x>"]
        assert found["common_prefixes"] == ["dir/deep"]

    @pytest.mark.parametrize("delimiter", ["", "&delimiter=/"])
    @pytest.mark.parametrize("most", [1, 2, 3, 5, 6, 8])
    def test_a_long_list_comes_in_pieces_that_make_the_whole(self, s3, store, most, delimiter):
        def pages(query):
            token = ""
            while True:
                url = f"{s3.url}/{BUCKET}?list-type=2{query}{token}"
                text = fetch(url)[2].decode()
                yield re.findall(r"<(?:Key|CommonPrefixes><Prefix)>(.*?)<", text)
                if "<IsTruncated>false" in text:
                    return
                token = text.partition("<NextContinuationToken>")[2].partition("<")[0]
                token = f"&continuation-token={token}"

        (whole,) = pages(delimiter)
        pieces = list(pages(f"{delimiter}&max-keys={most}"))
        assert sorted(chain.from_iterable(pieces)) == sorted(whole)
        assert {len(piece) for piece in pieces[:-1]} <= {most}

    def test_a_client_reads_on_behind_a_thousand_keys(self, s3):
        for number in range(2500):
            obstore.put(client(s3), f"n/{number:05}", b"") if number == 0 else None
            s3.keys[f"n/{number:05}"] = s3.keys["n/00000"]
        with s3.recorded() as log:
            found = obstore.list(client(s3), "n").collect()
        assert [one["path"] for one in found] == sorted(s3.keys)
        assert len(log.of("LIST", "n/")) == 3

    def test_many_keys_are_deleted_at_once(self, s3, store):
        with s3.recorded() as log:
            obstore.delete(store, ["dir/c", "dir/é & <x>", "a"])
        assert list(s3.keys) == [key for key in KEYS if key not in ("dir/c", "dir/é & <x>", "a")]
        assert len(log.of("DELETE")) == len(log) == 1

    def test_a_key_that_is_not_there_counts_as_deleted(self, store):
        obstore.delete(store, ["missing", "e"])
        obstore.delete(store, "missing")


class TestTheLog:
    def test_the_log_has_key_range_and_bytes(self, s3):
        store = client(s3)
        with s3.recorded() as log:
            obstore.put(store, "a", bytes(100))
            obstore.get_range(store, "a", start=10, length=20)
            obstore.list(store, "pre").collect()
            obstore.delete(store, ["a"])
        assert [(one.verb, one.key, one.range, one.received, one.sent) for one in log][:2] == [
            ("PUT", "a", "", 100, 0),
            ("GET", "a", "10-29", 0, 20),
        ]
        assert [(one.verb, one.key) for one in log][2:] == [("LIST", "pre/"), ("DELETE", "")]
        assert len(s3.log) == 4

    def test_requests_that_are_sent_together_are_one_round(self, s3):
        obstore.put(client(s3), "a", bytes(64))
        s3.latency, store = 0.5, client(s3)
        with s3.recorded() as log, ThreadPoolExecutor(64) as pool:
            ranges = pool.map(lambda n: obstore.get_range(store, "a", start=n, length=1), range(64))
            assert [bytes(one) for one in ranges] == [b"\0"] * 64
        assert (len(log), log.rounds, log.at_once) == (64, 1, 64)
        with s3.recorded() as log:
            for n in range(3):
                obstore.get_range(store, "a", start=n, length=1)
        assert (len(log), log.rounds, log.at_once) == (3, 3, 1)
        assert all(one.ended - one.begun >= 0.1 for one in log)

    def test_a_connection_is_not_faster_than_its_bandwidth(self, s3):
        s3.bandwidth, store = 4e6, client(s3)
        for call in (
            lambda: obstore.put(store, "a", bytes(400_000)),
            lambda: obstore.get(store, "a").bytes(),
        ):
            begun = time.monotonic()
            call()
            assert 0.08 < time.monotonic() - begun < 5

    def test_the_clock_of_the_server_can_be_set_ahead(self, s3):
        store = client(s3)
        obstore.put(store, "old", b"")
        s3.advance(86_400)
        obstore.put(store, "new", b"")
        new, old = obstore.list(store).collect()
        age = new["last_modified"] - old["last_modified"]
        assert timedelta(0) <= age - timedelta(days=1) < timedelta(minutes=1)


class TestFaults:
    """What each fault leaves, and what obstore makes of it."""

    @pytest.mark.parametrize("fault", Fault)
    def test_a_fault_comes_before_the_work_or_after_it(self, s3, fault):
        with s3.failing(nth(fault, "PUT")), pytest.raises(BaseError):
            obstore.put(client(s3, timeout="0.2s"), "a", b"content", mode="create")
        assert ("a" in s3.keys) == (fault in (Fault.LOST, Fault.HUNG, Fault.CUT))
        assert [one.fault for one in s3.log] == [fault]

    @pytest.mark.parametrize("fault", [fault for fault in Fault if fault is not Fault.CONFLICT])
    def test_the_client_repeats_a_get_whatever_failed(self, s3, fault):
        data = bytes(range(256)) * 1000
        obstore.put(client(s3), "a", data)
        with s3.failing(nth(fault, "GET")), s3.recorded() as log:
            assert obstore.get(client(s3, retries=1, timeout="0.5s"), "a").bytes() == data
        assert [one.fault for one in log] == [fault, None]

    def test_a_create_whose_reply_was_lost_is_told_as_taken(self, s3):
        with s3.failing(nth(Fault.LOST, "PUT")), pytest.raises(AlreadyExistsError):
            obstore.put(client(s3, retries=1), "a", b"mine", mode="create")
        assert s3.keys["a"].data == b"mine"

    def test_a_create_in_a_conflict_is_told_as_taken_although_nothing_is_there(self, s3):
        with s3.failing(nth(Fault.CONFLICT, "PUT")), pytest.raises(AlreadyExistsError):
            obstore.put(client(s3, retries=1), "a", b"mine", mode="create")
        assert not s3.keys

    def test_a_conflict_is_one_of_puts(self, s3):
        obstore.put(client(s3), "a", b"content")
        with s3.failing(share(1, [Fault.CONFLICT])):
            assert obstore.get(client(s3), "a").bytes() == b"content"

    def test_a_create_without_an_answer_is_not_repeated(self, s3):
        with s3.failing(nth(Fault.HUNG, "PUT")), pytest.raises(GenericError):
            obstore.put(client(s3, retries=5, timeout="0.2s"), "a", b"mine", mode="create")
        assert (len(s3.log), s3.keys["a"].data) == (1, b"mine")

    def test_half_of_a_body_is_sent_when_it_is_cut(self, s3):
        obstore.put(client(s3), "a", bytes(1000))
        with s3.failing(nth(Fault.CUT, "GET")), pytest.raises(GenericError):
            obstore.get(client(s3), "a").bytes()
        assert s3.log[-1].sent == 500

    def test_a_rule_names_the_request_that_fails(self, s3):
        store = client(s3)
        with s3.failing(nth(Fault.REFUSED, "PUT", "meta/", number=2)):
            for key in ("meta/a", "data/b", "meta/c", "meta/d"):
                try:
                    obstore.put(store, key, b"")
                except GenericError:
                    assert key == "meta/c"
        assert list(s3.keys) == ["meta/a", "data/b", "meta/d"]

    def test_a_part_of_all_requests_fails_the_same_ones_each_time(self, s3):
        def failed():
            with s3.failing(share(0.2, [Fault.REFUSED, Fault.DROPPED], seed=3)):
                return [put(number) for number in range(50)]

        def put(number):
            try:
                obstore.put(store, str(number), b"")
            except GenericError:
                return True
            return False

        store = client(s3)
        first = failed()
        assert 3 < sum(first) < 20
        assert failed() == first

    def test_the_server_ends_while_a_client_waits(self):
        with ThreadPoolExecutor(1) as pool:
            with S3Server() as server, server.failing(nth(Fault.HUNG, "PUT")):
                waiting = pool.submit(obstore.put, client(server), "a", b"")
                while not server.log:
                    time.sleep(0.001)
            with pytest.raises(GenericError):
                waiting.result(10)


def test_a_body_in_signed_chunks_is_put_together(s3):
    chunks = b"5;chunk-signature=ab\r\nhello\r\n3;chunk-signature=cd\r\n you\r\n"
    body = chunks.replace(b"3;", b"4;") + b"0;chunk-signature=ef\r\n\r\n"

    async def put():
        reader, writer = await asyncio.open_connection(*s3.url.removeprefix("http://").split(":"))
        writer.write(
            b"PUT /bucket/a HTTP/1.1\r\nexpect: 100-continue\r\ntransfer-encoding: chunked\r\n"
            b"x-amz-content-sha256: STREAMING-AWS4-HMAC-SHA256-PAYLOAD\r\n\r\n"
        )
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")
        writer.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        writer.close()
        await writer.wait_closed()

    asyncio.run(put())
    assert s3.keys["a"].data == b"hello you"
