// What the Node clients share: the conversations, what an answer must be, and one printed line for each check.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";

export const BASE_URL = process.env.CLIENTS_URL;
const FACTS = JSON.parse(readFileSync(process.env.CLIENTS_FACTS, "utf8")); // see serve.py
export const TURNS = FACTS.turns;
export const SIGNATURE = FACTS.signature; // of a thinking block, at its beginning
export const EXTRA = FACTS.extra; // fields that keep the responses the same each time
export const MESSAGE_EXTRA = FACTS.message_extra; // the same of the Messages API
export const WHOLE = ["think", "single"];
export const STREAMED = ["think", "think_then_calls"];
export const WEATHER = '{"temperature": 18}'; // in Paris, as in the conversation `follow_up`

export const ALL_TURNS = { context: "all_turns" }; // a response else sees the thoughts of the last turn only

const MODELS = FACTS.models;

/** Ways are [function, names of conversations]; the function tells {content, thought, calls, finish, usage}. */
export async function run(client, ways, loops) {
  const counts = {};
  const checks = [
    ...ways.flatMap(([way, names]) =>
      names.map((name) => [`${way.name} · ${name}`, (model) => compare(way, model, name, counts)]),
    ),
    ...loops.map((loop) => [loop.name, loop]),
  ];
  const step = process.env.CLIENTS_CHECKS === "each" ? MODELS.length : 1; // each check on one of the models, or on all
  const share = (place) => checks.filter((_, number) => number % step === place % step);
  const results = await Promise.all(MODELS.map((model, place) => inTurn(client, model, share(place)))); // each has a core
  process.exitCode = results.every(Boolean) ? 0 : 1;
}

async function inTurn(client, model, checks) {
  let passed = checks.length > 0;
  for (const [label, check] of checks) {
    const error = await check(model).then(
      () => undefined,
      (reason) => reason ?? new Error("rejected without a reason"),
    );
    console.log(`${error ? "FAIL" : "ok  "} ${client} · ${model} · ${label}`);
    if (error) console.log(String(error.stack ?? error).replace(/^/gm, "     "));
    passed &&= !error;
  }
  return passed;
}

async function compare(way, model, name, counts) {
  const turn = TURNS[name];
  const value = await way(model, turn);
  const { usage, ...answer } = { ...value, content: value.content ?? "", thought: (value.thought ?? "").trim() };
  const finish = turn.calls.length ? "tool_calls" : "stop";
  assert.deepEqual(answer, { content: turn.content, thought: turn.thought, calls: turn.calls, finish });
  assert.ok(Math.min(...usage) > 5, `usage ${usage}`);
  counts[name] ??= usage;
  assert.deepEqual(usage, counts[name]);
}

/** A conversation as the items of the Responses API. */
export function items(messages) {
  return messages.flatMap((message, number) => {
    const { role, content, reasoning_content: thought, tool_calls: calls = [], tool_call_id: id } = message;
    if (role === "user") return [{ role, content }];
    if (role === "tool") return [{ type: "function_call_output", call_id: id, output: content }];
    const summary = [{ type: "summary_text", text: thought }];
    return [
      ...(thought ? [{ type: "reasoning", id: `r${number}`, summary }] : []),
      ...(content ? [{ role, content }] : []),
      ...calls.map((call) => ({ type: "function_call", call_id: call.id, ...call.function })),
    ];
  });
}

/** A conversation as the messages of the Messages API, with the results of parallel calls in one. */
export function blocks(messages) {
  const conversation = [];
  for (const { role, content, reasoning_content: thinking, tool_calls: calls = [], tool_call_id: id } of messages) {
    if (role === "tool") {
      if (conversation.at(-1).role !== "user") conversation.push({ role: "user", content: [] });
      conversation.at(-1).content.push({ type: "tool_result", tool_use_id: id, content });
      continue;
    }
    const uses = calls.map((call) => ({ name: call.function.name, input: JSON.parse(call.function.arguments), id: call.id }));
    const parts = [
      ...(thinking ? [{ type: "thinking", thinking, signature: "of another service" }] : []),
      ...(content ? [{ type: "text", text: content }] : []),
      ...uses.map((use) => ({ type: "tool_use", ...use })),
    ];
    conversation.push({ role, content: parts });
  }
  return conversation;
}
