"""Content that looks like encrypted content stays content, with encryption and without."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis

from everloop.runtime.blobs import BlobsUnavailableError
from everloop.runtime.encryption.cipher import NO_CIPHER, Cipher, Key
from everloop.runtime.redis import connect_redis
from everloop.runtime.temporal.blob_payloads import data_converter
from everloop.runtime.temporal.encryption_codec import ENCODING, KEY_ID
from everloop.stores.artifacts.artifact_blobs import ArtifactBlobs
from everloop.stores.artifacts.changes import Append, Complete, Create, NewPart
from tests.stores.all_stores import AllStores
from tests.stores.artifacts.artifact_rig import redis_artifacts
from tests.stores.blobs.blob_rig import BlobRig, open_rig
from tests.stores.examples import said, submitted
from tests.support.encryption import CIPHER, keyring

PIECES = (
    st.just(b"sealed:")
    | st.binary(max_size=9).map(lambda content: CIPHER.seal_text(content.hex(), "purpose").encode())
    | st.binary(max_size=9).map(lambda content: CIPHER.seal(content, "purpose"))
    | st.binary(max_size=300).map(lambda content: NO_CIPHER.seal(content, "purpose"))
    | st.binary(max_size=300)
)
CONTENTS = st.lists(st.lists(PIECES, max_size=3).map(b"".join), min_size=1, max_size=5)


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.slow)])
def blob_rig(request: pytest.FixtureRequest) -> BlobRig:
    return open_rig(str(request.param), request)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(first=CONTENTS, then=CONTENTS, is_on=st.booleans(), completes=st.booleans())
async def test_artifacts_keep_it(  # noqa: PLR0913 -- fixtures, and what is drawn
    redis: Redis,
    encrypted: Redis,
    blob_rig: BlobRig,
    first: list[bytes],
    then: list[bytes],
    *,
    is_on: bool,
    completes: bool,
) -> None:
    """Artifacts keep any bytes, inline and in blobs, also if encryption is enabled between changes."""
    before = redis_artifacts(redis, blob_rig)
    after = redis_artifacts(encrypted if is_on else redis, blob_rig)
    rig = replace(after, context_id=before.context_id)
    part = NewPart("file", first[0])
    await before.artifacts.apply(before.context_id, "a", Create("task", (part,)))
    for content in first[1:]:
        await before.artifacts.apply(before.context_id, "a", Append(content))
    for content in then:
        await rig.artifacts.apply(rig.context_id, "a", Append(content))
    if completes:
        await rig.artifacts.apply(rig.context_id, "a", Complete())

    assert await rig.content("a") == b"".join((*first, *then))


@pytest.mark.parametrize("cipher", [NO_CIPHER, keyring("k1")], ids=["off", "on"])
@pytest.mark.parametrize("form", ["sealed:", "{}", '{{"sealed":', '{{"sealed": "{}"}}', "s{} "])
async def test_all_stores_in_redis_keep_it(redis_url: str, cipher: Cipher, form: str) -> None:
    """Texts of messages, answers, secrets, results, addresses and artifacts are returned unchanged."""
    word = form.format(CIPHER.seal_text('"text"', "purpose"))
    task = submitted().model_copy(update={"history": (said("m1", word),)})
    async with connect_redis(redis_url, cipher) as redis:
        stores = AllStores(redis, task, word)
        await stores.begin()
        await stores.go_on()
        await stores.check()


@pytest.mark.parametrize("cipher", [NO_CIPHER, keyring("k1")], ids=["off", "on"])
@given(content=CONTENTS.map(b"".join))
async def test_payloads_of_temporal_keep_it(cipher: Cipher, content: bytes) -> None:
    """Bytes, texts and names are returned unchanged, also with metadata like that of encrypted payloads."""
    converter = data_converter(None, cipher=cipher)
    text = content.decode("latin-1")
    value = {"encoding": ENCODING.decode(), KEY_ID: "k1", text: [text]}
    payloads = await converter.encode([content, text, value])

    assert await converter.decode(payloads, [bytes, str, dict]) == [content, text, value]


@pytest.mark.parametrize(
    ("secret", "reason"),
    [
        (None, "'k1', which is not known here"),
        (bytes(32), "with the key 'k1': .* compare this line of the file"),
    ],
    ids=["another id", "another key"],
)
async def test_right_keys_are_waited_for(
    redis_url: str, encrypted: Redis, blob_rig: BlobRig, secret: bytes | None, reason: str
) -> None:
    """A blob with a key that this process lacks is not lost: the store counts as away."""
    rig = redis_artifacts(encrypted, blob_rig)
    await rig.artifacts.apply(rig.context_id, "a", Create("task", (NewPart("file", b"secret" * 30),)))
    (key,) = (await rig.record("a")).blob_keys()
    wrong = Cipher([Key("k1", secret)]) if secret else keyring("k2")
    async with connect_redis(redis_url, wrong) as client:
        with pytest.raises(BlobsUnavailableError, match=reason):
            await ArtifactBlobs(client, blob_rig.blobs).get(key)
