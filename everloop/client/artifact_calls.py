"""Artifacts: lists of them, and their content, of any size."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from uuid import uuid4

from a2a.types import a2a_pb2 as pb

from everloop.client.content import Artifact, Part
from everloop.client.errors import InvalidError, NotFoundError
from everloop.client.fold import result_of
from everloop.client.server import Server


class ArtifactCalls:
    """The part of `Client` for artifacts."""

    _connection: Server

    async def artifacts(self, context_id: str = "", *, task_id: str = "") -> list[Artifact]:
        """Return the artifacts of a conversation or of a task, oldest first, as far as A2A lists them.

        Raises:
            InvalidError: neither is given.
            NotFoundError: there is no such task.
        """
        is_everloop = await self._connection.is_everloop()
        if task_id:
            task = await self._connection.get_task(task_id, 1)
            return [*result_of(task, is_everloop=is_everloop).artifacts]
        if not context_id:
            raise InvalidError("artifacts of what? Give a context_id or a task_id")
        found: dict[str, Artifact] = {}
        request = pb.ListTasksRequest(context_id=context_id, history_length=0, include_artifacts=True)
        listed = [task async for task in self._connection.list_tasks(request)]
        for task in reversed(listed):
            found |= {one.id: one for one in result_of(task, is_everloop=is_everloop).artifacts}
        return list(found.values())

    async def artifact(self, context_id: str, artifact_id: str) -> Artifact:
        """Return an artifact.

        Raises:
            NotFoundError: there is no such artifact.
        """
        for one in await self.artifacts(context_id):
            if one.id == artifact_id:
                return one
        raise NotFoundError(f"there is no artifact {artifact_id!r} in the context {context_id!r}")

    async def read(self, part: Part) -> bytes:
        """Return the content of a part, fetched if it is elsewhere.

        Raises:
            ClientError: it cannot be fetched.
        """
        async with aclosing(self.download(part)) as pieces:
            return b"".join([piece async for piece in pieces])

    async def download(self, part: Part) -> AsyncGenerator[bytes]:
        """Yield the content of a part in chunks, as they arrive: of data as JSON, of text as UTF-8.

        Raises:
            ClientError: it cannot be fetched.
        """
        if part.url is None:
            yield _content(part)
            return
        await self._connection.transport()  # the gateway's own address comes from its card
        async with aclosing(self._connection.download(self._connection.reachable(part.url))) as pieces:
            async for piece in pieces:
                yield piece

    async def save(self, part: Part, path: str | Path) -> Path:
        """Write the content of a part to a file, of any size, and return its path.

        The file is written when it is complete, and replaces an existing one. In a directory it gets
        the name of the part.

        Raises:
            InvalidError: the file cannot be written.
            ClientError: it cannot be fetched.
        """
        return await write_file(await asyncio.to_thread(_target, part, path), self.download(part))

    async def is_own(self, part: Part) -> bool:
        """Whether the content of a part is in it, or at the server that was asked or one of its `hosts`.

        Agents may name any other address, also one that this machine reaches and they do not.
        """
        if part.url is None:
            return True
        await self._connection.transport()  # it reads the names of the gateway
        return self._connection.is_own(part.url)


async def write_file(path: Path, pieces: AsyncGenerator[bytes]) -> Path:
    """Write pieces to a file, which is there when it is whole, and return its path.

    Raises:
        InvalidError: the file cannot be written.
    """
    growing = path.with_name(f".{path.name}.{uuid4().hex[:8]}.part")
    try:
        with growing.open("wb") as file:
            async with aclosing(pieces):
                async for piece in pieces:
                    await asyncio.to_thread(file.write, piece)
        growing.replace(path)
    except OSError as error:
        raise InvalidError(f"{path} cannot be written: {error.strerror or error}") from None
    finally:
        growing.unlink(missing_ok=True)
    return path


def _content(part: Part) -> bytes:
    if part.raw is not None:
        return part.raw
    return part.text.encode() if part.text is not None else json.dumps(part.data, ensure_ascii=False).encode()


def _target(part: Part, path: str | Path) -> Path:
    """Return the file to write. A part's name from the server cannot lead to another directory."""
    path = Path(path).expanduser()
    return path / (Path(part.filename).name or "artifact") if path.is_dir() else path
