"""A clerk that turns invoices into data; a person corrects those whose sums do not add up."""

import os
import sqlite3
from contextlib import closing
from datetime import date
from typing import Literal

from pydantic import BaseModel, Field

from everloop import Agent, InputRequired, ToolContext, prompt, tool, tools


class Line(BaseModel):
    """An item of an invoice."""

    text: str
    cents: int


class Invoice(BaseModel):
    """An invoice as data. All amounts are in cents."""

    supplier: str
    number: str
    day: date
    currency: Literal["EUR", "USD", "GBP"]
    lines: list[Line] = Field(min_length=1)
    tax: int
    total: int

    @property
    def sum(self) -> int:
        """The sum of the lines and the tax."""
        return sum(line.cents for line in self.lines) + self.tax


class Invoices(BaseModel):
    """The recorded invoices of a message."""

    invoices: list[Invoice]


@tool(idempotent=True)
def record(invoice: Invoice, context: ToolContext) -> Invoice:
    """Record an invoice, and return it as it is recorded.

    Write down what the invoice says, wrong sums too: a person is asked about these.
    """
    if context.answer is not None:
        invoice = Invoice.model_validate(context.answer)
    if invoice.sum != invoice.total:
        raise InputRequired(
            f"Lines and tax of invoice {invoice.number} of {invoice.supplier} add up to {invoice.sum} cents, "
            f"its total is {invoice.total}. Compare it with the file, and correct it:\n"
            f"{invoice.model_dump_json(indent=2)}",
            "data",
            schema=Invoice,
        )
    save(invoice)
    return invoice


def save(invoice: Invoice) -> None:
    """Store an invoice in the database; repeating it changes nothing.

    Raises:
        ValueError: another invoice of this supplier has this number.
    """
    with closing(sqlite3.connect(os.environ.get("INVOICES_DATABASE", "invoices.db"))) as database, database:
        database.execute(
            "CREATE TABLE IF NOT EXISTS invoices (supplier, number, data, PRIMARY KEY (supplier, number))"
        )
        key = (invoice.supplier, invoice.number)
        database.execute("INSERT OR IGNORE INTO invoices VALUES (?, ?, ?)", (*key, invoice.model_dump_json()))
        (kept,) = database.execute(
            "SELECT data FROM invoices WHERE supplier = ? AND number = ?", key
        ).fetchone()
    if Invoice.model_validate_json(kept) != invoice:
        raise ValueError(
            f"{invoice.supplier} has sent another invoice {invoice.number} before; tell the user so, and do "
            "not record this one"
        )


agent = Agent(
    id="invoice-clerk",
    name="Invoice clerk",
    description="Turns invoices into data.",
    plugins=[
        prompt(
            "The user sends invoices as files. Record each of them, all in one go, exactly as it says. Then "
            "answer with those that were recorded, as `record` returned them."
        ),
        tools(record),
    ],
    output=Invoices,
    model_takes=["image/*", "application/pdf"],
)
