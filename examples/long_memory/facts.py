"""Permanent memory of the agent: a table of facts, each belonging to an owner."""

import os
import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager

TABLE = "CREATE TABLE IF NOT EXISTS facts (owner, fact, PRIMARY KEY (owner, fact))"


@contextmanager
def _database() -> Generator[sqlite3.Connection]:
    with closing(sqlite3.connect(os.environ.get("FACTS_DATABASE", "facts.db"))) as database, database:
        database.execute(TABLE)
        yield database


def add(owner: str, fact: str) -> None:
    """Store a fact; repeating it changes nothing."""
    with _database() as database:
        database.execute("INSERT OR IGNORE INTO facts VALUES (?, ?)", (owner, fact))


def remove(owner: str, fact: str) -> bool:
    """Remove a fact; return whether it was stored."""
    with _database() as database:
        return database.execute("DELETE FROM facts WHERE owner = ? AND fact = ?", (owner, fact)).rowcount > 0


def of(owner: str) -> list[str]:
    """Return the facts of an owner, oldest first."""
    with _database() as database:
        rows = database.execute("SELECT fact FROM facts WHERE owner = ? ORDER BY rowid", (owner,))
        return [fact for (fact,) in rows]
