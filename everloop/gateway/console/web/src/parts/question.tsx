// Questions of a task: yes or no, a choice, a form of a JSON schema, or free text.

import { useRef, useState } from "preact/hooks";
import type { Json as JsonValue, Question } from "../api/types";
import { printable } from "../state/printable";
import { Exact, Json } from "./content/text";
import { useStill } from "./ui";

type Schema = { [key: string]: JsonValue };
/** The user's answer in the format of the task. The model reads the `note` of a rejection. */
export type Given = { answer: JsonValue } | { approved: boolean; note: string } | { secret: string };

type AskedProps = { question: Question; onGiven: (given: Given) => Promise<void> };

/** A changed question is a new one: input for the old one is dropped. */
export function QuestionForm({ question, onGiven }: AskedProps) {
  return <Asked key={JSON.stringify(question)} question={question} onGiven={onGiven} />;
}

function Asked({ question, onGiven }: AskedProps) {
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState("");
  const place = useRef<HTMLElement>(null);
  const still = useStill(place);
  const isGiven = useRef(false); // set before the next paint
  const give = async (given: Given): Promise<void> => {
    if (isGiven.current) return;
    if (!still.check()) return setProblem("It has just appeared: read it, and press again.");
    isGiven.current = true;
    setBusy(true);
    setProblem("");
    try {
      const had = place.current?.contains(document.activeElement);
      await onGiven(given);
      // The form disappears. Keyboard users continue from here instead of the top of the page.
      if (had) document.querySelector<HTMLElement>(".turns")?.focus({ preventScroll: true });
    } catch (error) {
      setProblem((error as Error).message);
    } finally {
      isGiven.current = false;
      setBusy(false);
    }
  };
  const mine = !question.approvers || question.approvers === "owner";
  const isProse = (question.purpose ?? "input") === "input"; // the texts of all others end with the arguments
  const [first, rest] = isProse ? [question.text, ""] : parted(question.text);
  return (
    <section class="question" aria-label="The task asks" ref={place}>
      <Exact text={first} class="question-text" />
      {rest && <Exact text={rest} />}
      {question.tool && isProse && (
        <div class="question-call">
          <code>{printable(question.tool)}</code>
          {question.arguments !== undefined && question.arguments !== "{}" && <Exact text={written(question.arguments)} />}
        </div>
      )}
      <div role="group" aria-disabled={!still.isStill}>
        {mine ? <Fields question={question} busy={busy} give={give} /> : <p class="quiet">Somebody with the scope {printable(question.approvers!)} has to answer.</p>}
      </div>
      {problem && (
        <p class="call-error" role="alert">
          {problem}
        </p>
      )}
    </section>
  );
}

function parted(text: string): [first: string, rest: string] {
  const end = text.indexOf("\n");
  return end < 0 ? [text, ""] : [text.slice(0, end), text.slice(end + 1)];
}

/** Returns arguments as JSON of several lines, or unchanged if JavaScript would alter them, such as large numbers. */
function written(given: string | JsonValue): string {
  if (typeof given !== "string") return JSON.stringify(given, null, 2);
  try {
    const pretty = JSON.stringify(JSON.parse(given), null, 2);
    if (pretty.replace(/\s/g, "") === given.replace(/\s/g, "")) return pretty;
  } catch {
    // not JSON
  }
  return given;
}

type FieldsProps = { question: Question; busy: boolean; give: (given: Given) => Promise<void> };

function Fields({ question, busy, give }: FieldsProps) {
  if (question.kind === "auth") return <Secret busy={busy} give={give} />;
  if (question.purpose === "approval" || question.kind === "confirmation")
    return <YesNo purpose={question.purpose} busy={busy} give={give} />;
  if (question.kind === "selection")
    return (
      <div class="choices">
        {(question.options ?? []).map((option) => (
          <button type="button" disabled={busy} key={option} onClick={() => give({ answer: option })}>
            {printable(option)}
          </button>
        ))}
      </div>
    );
  if (question.kind === "data" && question.json_schema) return <SchemaForm schema={question.json_schema} busy={busy} give={give} />;
  return <Words busy={busy} give={give} />;
}

function YesNo({ purpose, busy, give }: { purpose: string | undefined; busy: boolean; give: FieldsProps["give"] }) {
  const [note, setNote] = useState("");
  const [yes, no] = purpose === "approval" ? ["Approve", "Reject"] : ["Yes", "No"];
  return (
    <div class="yes-no">
      {(purpose === "approval" || purpose === "outcome") && (
        <input
          value={note}
          maxLength={2000}
          placeholder="Note (the model reads it)"
          aria-label="Note"
          onInput={(event) => setNote(event.currentTarget.value)}
        />
      )}
      <button type="button" class="primary" disabled={busy} onClick={() => give({ approved: true, note })}>
        {yes}
      </button>
      <button type="button" disabled={busy} onClick={() => give({ approved: false, note })}>
        {no}
      </button>
    </div>
  );
}

function Words({ busy, give }: Omit<FieldsProps, "question">) {
  const [text, setText] = useState("");
  return (
    <form
      class="words"
      onSubmit={(event) => {
        event.preventDefault();
        void give({ answer: text });
      }}
    >
      <textarea rows={2} dir="auto" value={text} aria-label="Your answer" onInput={(event) => setText(event.currentTarget.value)} />
      <button class="primary" disabled={busy || !text.trim()}>
        Answer
      </button>
    </form>
  );
}

function Secret({ busy, give }: Omit<FieldsProps, "question">) {
  const [secret, setSecret] = useState("");
  return (
    <form
      class="words"
      onSubmit={(event) => {
        event.preventDefault();
        void give({ secret });
      }}
    >
      <input
        type="password"
        autocomplete="off"
        value={secret}
        aria-label="The secret"
        onInput={(event) => setSecret(event.currentTarget.value)}
      />
      <button class="primary" disabled={busy || !secret}>
        Hand over
      </button>
      <button type="button" disabled={busy} onClick={() => give({ approved: false, note: "" })}>
        Decline
      </button>
    </form>
  );
}

// Forms of JSON schemas: fields for simple values, and JSON for others.

function SchemaForm({ schema, busy, give }: { schema: Schema; busy: boolean; give: FieldsProps["give"] }) {
  const fields = schema["type"] === "object" ? Object.entries((schema["properties"] ?? {}) as { [name: string]: Schema }) : [];
  const [value, setValue] = useState<{ [name: string]: JsonValue }>(() => defaults(fields, schema));
  const [text, setText] = useState("{}");
  const [problem, setProblem] = useState("");
  const required = new Set((schema["required"] ?? []) as string[]);
  return (
    <form
      class="schema"
      onSubmit={(event) => {
        event.preventDefault();
        if (fields.length) return void give({ answer: value });
        try {
          void give({ answer: JSON.parse(text) as JsonValue });
          setProblem("");
        } catch (error) {
          setProblem(`That is not JSON: ${(error as Error).message}`);
        }
      }}
    >
      {fields.map(([name, field]) => {
        const resolved = resolve(field, schema);
        const known = { name, schema: resolved, required: required.has(name), value: value[name], set: (given: JsonValue | undefined) => setValue((old) => changed(old, name, given)) };
        return kindOf(resolved) === "json" ? <JsonField key={name} {...known} whole={schema} /> : <Field key={name} {...known} />;
      })}
      {!fields.length && (
        <>
          <textarea rows={6} class="code" value={text} aria-label="JSON" onInput={(event) => setText(event.currentTarget.value)} />
          <WhatFits schema={schema} />
        </>
      )}
      {problem && <p class="call-error">{problem}</p>}
      <button class="primary" disabled={busy}>
        Answer
      </button>
    </form>
  );
}

type FieldProps = { name: string; schema: Schema; required: boolean; value: JsonValue | undefined; set: (value: JsonValue | undefined) => void };

function Field({ name, schema, required, value, set }: FieldProps) {
  const label = printable(String(schema["title"] ?? name));
  const kind = kindOf(schema);
  const said = typeof value === "string" || typeof value === "number" ? String(value) : "";
  return (
    <label class={kind === "boolean" ? "check" : ""}>
      <span>
        {label}
        {required && <span class="needed"> *</span>}
      </span>
      {kind === "choice" ? (
        <select required={required} value={said} onChange={(event) => set(event.currentTarget.value || undefined)}>
          <option value="" />
          {(schema["enum"] as JsonValue[]).map((option) => (
            <option key={String(option)} value={String(option)}>
              {printable(String(option))}
            </option>
          ))}
        </select>
      ) : kind === "boolean" ? (
        <input type="checkbox" checked={value === true} onChange={(event) => set(event.currentTarget.checked)} />
      ) : kind === "number" ? (
        <input
          type="number"
          step={schema["type"] === "integer" ? "1" : "any"}
          {...bounds(schema, ["minimum", "min"], ["maximum", "max"])}
          required={required}
          value={said}
          onInput={(event) => set(event.currentTarget.value === "" ? undefined : event.currentTarget.valueAsNumber)}
        />
      ) : (
        <input
          type={(FORMATS[String(schema["format"] ?? "")] ?? "text") as "text"}
          {...bounds(schema, ["minLength", "minLength"], ["maxLength", "maxLength"])}
          required={required}
          value={said}
          onInput={(event) => set(event.currentTarget.value || undefined)}
        />
      )}
      {schema["description"] ? <small>{printable(String(schema["description"]), true)}</small> : null}
    </label>
  );
}

/** A value that does not fit into a field, such as a list: entered as JSON, with its schema beside it. */
function JsonField({ name, schema, required, value, set, whole }: FieldProps & { whole: Schema }) {
  const [text, setText] = useState(value === undefined ? "" : JSON.stringify(value, null, 2));
  return (
    <>
      <label>
        <span>
          {printable(String(schema["title"] ?? name))}
          {required && <span class="needed"> *</span>}
        </span>
        <textarea
          rows={4}
          class="code"
          required={required}
          placeholder={schema["type"] === "array" ? "[ … ]" : "{ … }"}
          value={text}
          onInput={({ currentTarget }) => {
            setText(currentTarget.value);
            try {
              set(currentTarget.value.trim() ? (JSON.parse(currentTarget.value) as JsonValue) : undefined);
              currentTarget.setCustomValidity("");
            } catch (error) {
              currentTarget.setCustomValidity(`That is not JSON: ${(error as Error).message}`);
            }
          }}
        />
        {schema["description"] ? <small>{printable(String(schema["description"]), true)}</small> : null}
      </label>
      <WhatFits schema={whole["$defs"] ? { ...schema, $defs: whole["$defs"] } : schema} />
    </>
  );
}

function WhatFits({ schema }: { schema: Schema }) {
  return (
    <details class="what-fits">
      <summary>What fits, as a JSON schema</summary>
      <Json text={JSON.stringify(schema, (key, value: JsonValue) => (key === "$ref" && value === null ? undefined : value))} />
    </details>
  );
}

/** Returns the rules of a schema that the browser checks. The gateway checks the rest. */
function bounds(schema: Schema, ...names: [rule: string, attribute: string][]): Record<string, number> {
  return Object.fromEntries(names.flatMap(([rule, attribute]) => (typeof schema[rule] === "number" ? [[attribute, schema[rule]]] : [])));
}

const FORMATS: Record<string, "date" | "email" | "url" | "time"> = { date: "date", email: "email", uri: "url", time: "time" };

function kindOf(schema: Schema): "text" | "number" | "boolean" | "choice" | "json" {
  if (Array.isArray(schema["enum"])) return schema["enum"].every((each) => typeof each === "string") ? "choice" : "json";
  switch (schema["type"]) {
    case "string":
      return "text";
    case "number":
    case "integer":
      return "number";
    case "boolean":
      return "boolean";
  }
  return "json";
}

/** Resolves a reference within the schema, and removes null from optional values. */
function resolve(schema: Schema, whole: Schema): Schema {
  const reference = schema["$ref"];
  if (typeof reference === "string" && reference.startsWith("#/$defs/")) {
    const found = (whole["$defs"] as { [name: string]: Schema } | undefined)?.[reference.slice(8)];
    return found ? { ...found, ...schema, $ref: null } : schema;
  }
  const options = schema["anyOf"] as Schema[] | undefined;
  const real = options?.filter((option) => option["type"] !== "null");
  return real?.length === 1 ? { ...resolve(real[0]!, whole), title: schema["title"] ?? null } : schema;
}

function defaults(fields: [string, Schema][], whole: Schema): { [name: string]: JsonValue } {
  const given: { [name: string]: JsonValue } = {};
  for (const [name, field] of fields) {
    const known = field["default"];
    if (known !== undefined && known !== null) given[name] = known;
    else if (kindOf(resolve(field, whole)) === "boolean") given[name] = false;
  }
  return given;
}

function changed(old: { [name: string]: JsonValue }, name: string, value: JsonValue | undefined): { [name: string]: JsonValue } {
  const { [name]: _, ...rest } = old;
  return value === undefined ? rest : { ...rest, [name]: value };
}
