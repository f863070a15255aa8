"""Blobs: bytes too large for Temporal's history, each under a key.

BlobError
├── BlobKeyError            the text is not a key of a blob
├── BlobMissingError        the blob does not exist; a retry does not help
├── BlobCorruptError        the stored content fails its checksum; a retry does not help
├── BlobsUnavailableError   the store is unreachable, full, or denies access; retry
└── BlobsUnfitError         at start: the store cannot be used
"""

import asyncio
import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar, TypeVar

from everloop.runtime.environment import StartError

PROBE_KEY = "probe"
"""A blob that every store holds from its first check on: its content is the id of the store."""

ARTIFACT_FOLDER = "artifact"
"""Folder of the blobs of artifacts. They live as long as their artifact, whose store deletes them."""

_WORD = r"(?!\.)[\w.%~-]{1,200}"
_KEY = re.compile(rf"{_WORD}(/{_WORD}){{0,7}}", re.ASCII)

# Not the threads that asyncio.to_thread uses: a tool may hold all of those. Hashing always comes to an end.
_hashing = ThreadPoolExecutor(2, thread_name_prefix="sha256")

T = TypeVar("T")


class BlobError(Exception):
    """Base class of errors of the blob store."""


class BlobKeyError(BlobError):
    """The text is not a key of a blob."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"{key!r} is no key of a blob: expected up to 8 words with / between them, each of at most 200 "
            "letters, digits and signs of _ . % ~ - and none with a dot at its head"
        )


class BlobMissingError(BlobError):
    """The blob does not exist; a retry does not help. Clients read this text: it names no place."""

    def __init__(self, key: str) -> None:
        super().__init__(f"blob {key} is missing: a part of the task is lost")


class BlobCorruptError(BlobError):
    """The stored content fails its checksum; a retry does not help. Clients read this text, too."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"blob {key} is damaged, because its sha256 is another one than when it was stored: "
            "a part of the task is lost"
        )


class BlobsUnavailableError(BlobError):
    """The store is unreachable, full, or denies access for now. Retry."""

    def __init__(self, store: str, reason: object) -> None:
        super().__init__(f"{store} cannot be used now: {reason}")


class BlobsUnfitError(BlobError, StartError):
    """The store cannot be used; the message gives the reason and the change to make."""


@dataclass(frozen=True)
class BlobPage:
    """Keys of blobs and the cursor of the next page; an empty cursor marks the last page."""

    keys: tuple[str, ...]
    cursor: str = ""


class Blobs(ABC):
    """Map of keys to immutable bytes. Safe to call from several processes at once.

    The age of a blob counts from its last put; in Redis, from its last use.
    """

    location: str
    """Names the store for operators: its kind and where it is, without credentials."""

    expires: ClassVar[bool] = False
    """Whether the store itself removes payloads that were unused for their time to live."""

    @property
    def links(self) -> "BlobLinks | None":
        """Links to blobs for clients; None if the store does not support them or they are switched off."""
        return None

    @abstractmethod
    async def put(self, key: str, content: bytes) -> None:
        """Store the content. It becomes visible to readers as a whole when this returns.

        Putting the same content again repairs a lost or damaged blob and resets its age.

        Raises:
            BlobKeyError: the key is invalid.
            BlobsUnavailableError: it may or may not be stored; put it again.
        """

    @abstractmethod
    async def get(self, key: str) -> bytes:
        """Return the content, checked against the sha256 that was stored with it.

        Raises:
            BlobKeyError: the key is invalid.
            BlobMissingError: the blob does not exist.
            BlobCorruptError: the content fails its checksum.
            BlobsUnavailableError: the store cannot answer now.
        """

    @abstractmethod
    async def delete(self, key: str) -> None:
        """Remove a blob. Missing blobs are ignored.

        Raises:
            BlobKeyError: the key is invalid.
            BlobsUnavailableError: it may or may not be removed; delete it again.
        """

    @abstractmethod
    async def list_old(self, folder: str, age: timedelta, cursor: str) -> BlobPage:
        """Return a page of the blobs of a folder that have at least this age; a page may be empty.

        A blob that exists and has this age until the last page is on one of the pages.

        Raises:
            BlobsUnavailableError: the store cannot answer now.
        """

    @abstractmethod
    async def remove(self, key: str, age: timedelta) -> bool:
        """Remove a blob if it still has at least this age; return whether it was removed.

        Raises:
            BlobsUnavailableError: it may or may not be removed; remove it again.
        """

    async def renew(self, key: str) -> None:  # noqa: B027 -- most stores have no time to live
        """Restart the time to live of a blob, where the store has one.

        Raises:
            BlobsUnavailableError: renew it again.
        """

    async def remove_unfinished(self, age: timedelta) -> int:
        """Remove unfinished writes of dead processes that have at least this age; return the number removed.

        Raises:
            BlobsUnavailableError: do it again.
        """
        return 0


@dataclass(frozen=True)
class LinkTerms:
    """Terms of a link: Content-Type, Content-Disposition, and lifetime (1 to 604,800 s)."""

    media_type: str
    disposition: str
    seconds: int


class BlobLinks(ABC):
    """Links by which clients fetch blobs from the store itself."""

    seconds: int
    """Lifetime of a link, from the settings."""

    @abstractmethod
    async def join(self, key: str, sources: Sequence[str]) -> None:
        """Concatenate blobs into a new one within the store; the sources stay.

        The URL of `key` serves the complete blob when this returns, and nothing before. Joining again
        makes the same blob again. It has no sha256 of its own, so `Blobs.get` reports it as corrupt:
        read the sources.

        Raises:
            BlobKeyError: a key is invalid.
            BlobMissingError: a source does not exist.
            BlobCorruptError: a source fails its checksum, as far as it was read.
            BlobsUnavailableError: it may or may not be joined; join it again.
        """

    @abstractmethod
    async def url(self, key: str, terms: LinkTerms) -> str:
        """Return a URL that serves the blob to any holder of the URL, on these terms.

        The existence of the blob is not checked.

        Raises:
            BlobKeyError: the key is invalid.
            BlobsUnavailableError: no URL can be made now.
        """


def check_key(key: str) -> str:
    """Return a valid key unchanged, so that no key leads out of the store.

    Raises:
        BlobKeyError: the key is invalid.
    """
    if not is_key(key):
        raise BlobKeyError(key)
    return key


def is_key(name: str) -> bool:
    """Return whether a name is a key; the store may hold foreign objects."""
    return _KEY.fullmatch(name) is not None


def sha256(content: bytes) -> str:
    """Return the hexadecimal checksum that is stored with a blob."""
    return hashlib.sha256(content).hexdigest()


async def in_hashing_thread(work: Callable[[], T]) -> T:
    """Run work that reads all of a blob's content in the hashing threads, off the event loop."""
    return await asyncio.get_running_loop().run_in_executor(_hashing, work)
