"""Blobs: bytes too large for Temporal's history, each under a key.

BlobError
├── BlobKeyError            this is no key of a blob
├── BlobMissingError        there is no blob of this key; trying again does not help
├── BlobCorruptError        what is kept is not what was put; trying again does not help
├── BlobsUnavailableError   the store cannot do it now: it is away, full, or refuses us; try again
└── BlobsUnfitError         at start: this store cannot be worked with
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

from everloop.runtime.settings import StartError

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
    """A blob could not be kept or had."""


class BlobKeyError(BlobError):
    """This is no key of a blob."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"{key!r} is no key of a blob: expected up to 8 words with / between them, each of at most 200 "
            "letters, digits and signs of _ . % ~ - and none with a dot at its head"
        )


class BlobMissingError(BlobError):
    """There is no blob of this key; trying again does not help. Clients read this text: it names no place."""

    def __init__(self, key: str) -> None:
        super().__init__(f"blob {key} is missing: a part of the task is lost")


class BlobCorruptError(BlobError):
    """What is kept under this key is not what was put there; clients read this text as well."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"blob {key} is damaged, because its sha256 is another one than when it was stored: "
            "a part of the task is lost"
        )


class BlobsUnavailableError(BlobError):
    """The store cannot do it now: it is away, full, or refuses us. Try again."""

    def __init__(self, store: str, reason: object) -> None:
        super().__init__(f"{store} cannot be used now: {reason}")


class BlobsUnfitError(BlobError, StartError):
    """This store cannot be worked with; the message says why and what to change."""


@dataclass(frozen=True)
class BlobPage:
    """Keys of blobs, and where the next page begins; an empty cursor: this was the last one."""

    keys: tuple[str, ...]
    cursor: str = ""


class Blobs(ABC):
    """Key → bytes that never change. Safe to call from several processes at once.

    A blob is as old as the last time that it was put; in Redis, that it was used.
    """

    location: str
    """Names the store for operators: its kind and where it is, without credentials."""

    expires: ClassVar[bool] = False
    """Whether the store itself removes payloads that nobody used for their time to live."""

    @property
    def links(self) -> "BlobLinks | None":
        """Addresses of blobs for clients; None where the store has no such thing, or it is switched off."""
        return None

    @abstractmethod
    async def put(self, key: str, content: bytes) -> None:
        """Keep the content; when this returns, every reader finds all of it, and before that nothing.

        Putting the same content again changes nothing and mends a blob that was lost or damaged; but then it
        is one that was put just now.

        Raises:
            BlobKeyError: this is no key.
            BlobsUnavailableError: it may or may not be kept; put it again.
        """

    @abstractmethod
    async def get(self, key: str) -> bytes:
        """Return the content, checked against the sha256 that was stored with it.

        Raises:
            BlobKeyError: this is no key.
            BlobMissingError: there is none.
            BlobCorruptError: it is not what was put.
            BlobsUnavailableError: the store cannot answer now.
        """

    @abstractmethod
    async def delete(self, key: str) -> None:
        """Remove the blob if there is one.

        Raises:
            BlobKeyError: this is no key.
            BlobsUnavailableError: it may or may not be gone; delete it again.
        """

    @abstractmethod
    async def list_old(self, folder: str, age: timedelta, cursor: str) -> BlobPage:
        """Return blobs of a folder that are at least so old, from a cursor on; a page may be empty.

        A blob that is there, and old, all the time until the last page is on one of the pages.

        Raises:
            BlobsUnavailableError: the store cannot answer now.
        """

    @abstractmethod
    async def remove(self, key: str, age: timedelta) -> bool:
        """Remove a blob if it still is at least so old; return whether it was.

        Raises:
            BlobsUnavailableError: it may or may not be gone; remove it again.
        """

    async def renew(self, key: str) -> None:  # noqa: B027 -- most stores have no time to live
        """Let the time to live of a blob begin anew, where the store has one.

        Raises:
            BlobsUnavailableError: renew it again.
        """

    async def remove_unfinished(self, age: timedelta) -> int:
        """Remove what processes that died left half written, if it is so old; return how much it was.

        Raises:
            BlobsUnavailableError: do it again.
        """
        return 0


@dataclass(frozen=True)
class LinkTerms:
    """How a link serves a blob: Content-Type, Content-Disposition, and for how long (1 to 604,800 s)."""

    media_type: str
    disposition: str
    seconds: int


class BlobLinks(ABC):
    """Addresses at which clients fetch blobs from the store itself."""

    seconds: int
    """How long a link is to last, by the settings."""

    @abstractmethod
    async def join(self, key: str, sources: Sequence[str]) -> None:
        """Copy several blobs, in order, into one within the store; the sources stay.

        When this returns, the URL of `key` serves all of it, and before that nothing. Joining again makes the
        same blob again. It has no sha256 of its own, so `Blobs.get` takes it for damaged: read the sources.

        Raises:
            BlobKeyError: this is no key.
            BlobMissingError: there is no such source.
            BlobCorruptError: a source is not what was put, as far as it was read.
            BlobsUnavailableError: it may or may not be joined; join it again.
        """

    @abstractmethod
    async def url(self, key: str, terms: LinkTerms) -> str:
        """Return an address that serves the blob to whoever has it, on these terms.

        Whether there is such a blob is not looked up.

        Raises:
            BlobKeyError: this is no key.
            BlobsUnavailableError: no address can be made now.
        """


def check_key(key: str) -> str:
    """Return the key if it is one, so that no key leads out of the store.

    Raises:
        BlobKeyError: it is none.
    """
    if not is_key(key):
        raise BlobKeyError(key)
    return key


def is_key(name: str) -> bool:
    """Whether this is a key; others may have put something else into the store."""
    return _KEY.fullmatch(name) is not None


def sha256(content: bytes) -> str:
    """Return the checksum that is stored with a blob, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


async def in_hashing_thread(work: Callable[[], T]) -> T:
    """Do what reads all of a blob's content elsewhere than on the event loop."""
    return await asyncio.get_running_loop().run_in_executor(_hashing, work)
