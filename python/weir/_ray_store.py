# SPDX-License-Identifier: Apache-2.0
"""Where sessions of many replicas are kept, in versions that are written once.

A version of a session is an object of its own, ID/NUMBER, and is only ever made where there was none: of two replicas
that both believe that they have the session, one cannot write. Older versions go once a newer one is there.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import Any, Protocol


class Store(Protocol):
    """What weir.ray needs of a store of your own. Safe to use from several threads, and to pickle."""

    def read(self, id: str) -> tuple[int, bytes] | None:
        """The newest version and its number; None if there is none."""

    def write(self, id: str, number: int, data: bytes) -> bool:
        """Makes a version, which is there as a whole or not at all when this returns. False: this one or a newer one is
        there already."""

    def delete(self, id: str) -> None:
        """All versions."""


_NUMBER = re.compile(r"\d{12}")


def check_id(id: str) -> str:
    """Ids become names of files. ValueError for those that cannot."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}", id):
        raise ValueError(f"a session's id has up to 100 letters, digits, '_', '-' and '.', not {id!r}")
    return id


class FolderStore:
    """A folder that all replicas see, of a file system with hard links (NFS has them)."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)

    def _numbers(self, id: str) -> list[int]:
        try:
            return sorted(int(name) for name in os.listdir(self.folder / id) if _NUMBER.fullmatch(name))
        except FileNotFoundError:
            return []

    def _path(self, id: str, number: int) -> Path:
        return self.folder / id / f"{number:012}"

    def read(self, id: str) -> tuple[int, bytes] | None:
        while numbers := self._numbers(id):
            try:
                return numbers[-1], self._path(id, numbers[-1]).read_bytes()
            except FileNotFoundError:  # a newer one came, or the session was deleted
                continue
        return None

    def write(self, id: str, number: int, data: bytes) -> bool:
        (self.folder / id).mkdir(exist_ok=True)
        handle, part = tempfile.mkstemp(dir=self.folder / id, suffix=".part")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(part, self._path(id, number))
            except FileExistsError:
                return False
            folder = os.open(self.folder / id, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        finally:
            os.unlink(part)
        # A version of this number may have been here and gone. A newer one is then here.
        numbers = self._numbers(id)
        if numbers and numbers[-1] > number:
            self._path(id, number).unlink(missing_ok=True)
            return False
        for old in numbers:
            if old < number:
                self._path(id, old).unlink(missing_ok=True)
        return True

    def delete(self, id: str) -> None:
        for number in self._numbers(id):
            self._path(id, number).unlink(missing_ok=True)
        try:
            (self.folder / id).rmdir()
        except OSError:  # a file that is being written, which no version will follow
            pass


class S3Store:
    """A bucket of S3, or of a service that knows conditional writes as S3 does. Needs boto3, whose settings and
    environment apply."""

    def __init__(self, url: str) -> None:
        found = re.fullmatch(r"s3://([^/]+)/?(.*?)/?", url)
        if found is None:
            raise ValueError(f"a place in S3 is written s3://BUCKET/PREFIX, not {url!r}")
        self.bucket, prefix = found[1], found[2]
        self.prefix = prefix + "/" if prefix else ""
        self._client: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None}

    @property
    def client(self) -> Any:
        if self._client is None:
            import boto3

            self._client = boto3.client("s3")
        return self._client

    def _keys(self, id: str) -> list[str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(
            Bucket=self.bucket, Prefix=f"{self.prefix}{id}/", PaginationConfig={}
        )
        return sorted(entry["Key"] for page in pages for entry in page.get("Contents", ()))

    def read(self, id: str) -> tuple[int, bytes] | None:
        while keys := self._keys(id):
            try:
                data: bytes = self.client.get_object(Bucket=self.bucket, Key=keys[-1])["Body"].read()
                return int(keys[-1][-12:]), data
            except self.client.exceptions.NoSuchKey:  # a newer one came, or the session was deleted
                continue
        return None

    def write(self, id: str, number: int, data: bytes) -> bool:
        from botocore.exceptions import ClientError

        key = f"{self.prefix}{id}/{number:012}"
        try:
            self.client.put_object(Bucket=self.bucket, Key=key, Body=data, IfNoneMatch="*")
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] not in (409, 412):
                raise
            return False
        keys = self._keys(id)
        if keys and keys[-1] > key:
            self._remove([key])
            return False
        self._remove([old for old in keys if old < key])
        return True

    def _remove(self, keys: list[str]) -> None:
        for key in keys:
            self.client.delete_object(Bucket=self.bucket, Key=key)

    def delete(self, id: str) -> None:
        self._remove(self._keys(id))


def open_store(place: str | os.PathLike[str] | Store) -> Store:
    """A folder, s3://BUCKET/PREFIX, or an object with the methods of Store."""
    if isinstance(place, str) and place.startswith("s3://"):
        return S3Store(place)
    if isinstance(place, (str, os.PathLike)):
        return FolderStore(place)
    return place
