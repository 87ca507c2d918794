"""Secrets: no key, secret or token is told, whatever goes wrong, and none leaves the process."""

import logging
import pickle
import traceback

import pandas as pd
import pytest

import blztable as blz
from blztable.cli.command import main
from blztable.storage.remote import object_bucket
from support.remote_places import options_of
from support.s3_server import Fault, share
from support.stores import said_by_a_child

URL = "s3://bucket/t.blz"
SECRETS = ("hidden-key-4711", "hidden-word-4712", "hidden-token-4713")
FRAME = pd.DataFrame({"n": range(30), "word": ["ab"] * 30})

VERBS = {
    "open": lambda t, o: blz.open(URL, **o),
    "exists": lambda t, o: blz.exists(URL, **o),
    "read": lambda t, o: t.to_arrow(),
    "a filter": lambda t, o: t.count(filters=[("n", ">", 3)]),
    "take": lambda t, o: t.take([3]),
    "verify": lambda t, o: t.verify(),
    "versions": lambda t, o: t.versions(),
    "disk_usage": lambda t, o: t.disk_usage(),
    "append": lambda t, o: t.append(FRAME),
    "delete": lambda t, o: t.delete([("n", "==", 3)]),
    "vacuum": lambda t, o: t.vacuum(keep=1),
    "append by path": lambda t, o: FRAME.to_blz(URL, mode="a", **o),
    "replace": lambda t, o: FRAME.to_blz(URL, **o),
    "create": lambda t, o: FRAME.to_blz("s3://bucket/new.blz", **o),
    "copy": lambda t, o: blz.copy(URL, "s3://bucket/copy.blz", **o),
}
FAULTS = [Fault.REFUSED, Fault.CONFLICT, Fault.DROPPED, Fault.LOST, Fault.CUT]


@pytest.fixture
def secret(s3, monkeypatch, caplog):
    """Return options with secrets to reach a table; failing requests are soon given up."""
    monkeypatch.setattr(object_bucket, "_RETRY_SECONDS", 0)
    caplog.set_level(logging.DEBUG)
    key, word, token = SECRETS
    options = {**options_of(s3), "key": key, "secret": word, "token": token}
    FRAME.to_blz(URL, storage_options=options)
    return {"storage_options": options}


def check(*texts):
    """Fail if one of the texts has a secret."""
    for text in texts:
        assert not [one for one in SECRETS if one in text]


def told(error):
    """Return all that an error tells: itself, its causes and the lines of its traceback."""
    return "".join(traceback.format_exception(error)) + repr(error) + repr(vars(error))


@pytest.mark.parametrize("verb", VERBS)
def test_no_fault_of_a_server_tells_a_secret(s3, secret, caplog, verb):
    failed = 0
    for fault in FAULTS:
        table = blz.open(URL, "a", **secret)
        with s3.failing(share(1.0, [fault])):
            try:
                VERBS[verb](table, secret)
            except blz.BlzError as error:
                failed += 1
                check(told(error), repr(pickle.dumps(error)))
    # A conflict is an answer to a PUT alone.
    assert failed >= len(FAULTS) - 1
    check(caplog.text)


@pytest.mark.parametrize("verb", VERBS)
def test_no_refusal_of_credentials_tells_them(s3, secret, caplog, verb, monkeypatch):
    table = blz.open(URL, "a", **secret)
    monkeypatch.setattr(s3, "_access_key", "another")
    with pytest.raises(blz.AccessError) as caught:
        VERBS[verb](table, secret)
    check(told(caught.value), caplog.text, repr(table), repr(pickle.dumps(table)))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"endpoint_url": "http://{word}:{word}@127.0.0.1:1"}, "'endpoint_url' is no address"),
        ({"endpoint_url": "http://127.0.0.1:1/?key={word}"}, "'endpoint_url' is no address"),
        ({"endpoint_url": "no address {word}"}, "'endpoint_url' is no address"),
        ({"secret": "{word}\n"}, "'secret' has a line break"),
        ({"endpoint_url": "http://127.0.0.1:1"}, "failed"),
    ],
)
def test_no_wrong_address_or_setting_tells_a_secret(secret, changed, message):
    options = secret["storage_options"] | {
        name: value.format(word=SECRETS[1]) for name, value in changed.items()
    }
    with pytest.raises((blz.BlzError, ValueError), match=message) as caught:
        blz.open(URL, storage_options=options)
    check(told(caught.value))


def test_credentials_that_no_request_can_have_are_told_as_an_error(s3, secret, monkeypatch, capfd):
    options = {"endpoint_url": s3.url, "region": "us-east-1", "key": "a", "secret": "b"}
    monkeypatch.setenv("AWS_SESSION_TOKEN", f"{SECRETS[2]}\n")
    with pytest.raises(blz.StorageError, match="check the address and the credentials") as caught:
        blz.open(URL, storage_options=options)
    check(told(caught.value), *capfd.readouterr())


def test_a_child_of_a_fork_tells_no_secret(secret):
    with blz.open(URL, **secret) as opened:
        check(said_by_a_child(lambda fork: fork() or opened.to_arrow()))
        check(said_by_a_child(lambda fork: fork() or blz.open(URL, **secret)))


@pytest.mark.parametrize(
    "command",
    [["info"], ["head"], ["verify"], ["versions"], ["vacuum"], ["schema"], ["count"]],
    ids=lambda command: command[0],
)
def test_the_command_line_takes_secrets_of_the_environment_and_tells_none(
    s3, secret, command, monkeypatch, capfd
):
    key, word, token = SECRETS
    for name, value in {
        "AWS_ACCESS_KEY_ID": key,
        "AWS_SECRET_ACCESS_KEY": word,
        "AWS_SESSION_TOKEN": token,
        "AWS_ENDPOINT_URL": s3.url,
        "AWS_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    assert main([*command, URL]) == 0
    check(*capfd.readouterr())
    with s3.failing(share(1.0, [Fault.REFUSED])):
        assert main([*command, URL]) != 0
    check(*capfd.readouterr())
    monkeypatch.setattr(s3, "_access_key", "another")
    assert main([*command, URL]) != 0
    said = capfd.readouterr()
    check(*said)
    assert "was refused" in said.err
