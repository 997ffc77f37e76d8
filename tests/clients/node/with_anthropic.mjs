// @anthropic-ai/sdk: create, streams and their helper, parse, the tool runner, counts and models.
import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";
import { betaTool } from "@anthropic-ai/sdk/helpers/beta/json-schema";
import { jsonSchemaOutputFormat } from "@anthropic-ai/sdk/helpers/json-schema";
import { VERSION } from "@anthropic-ai/sdk/version";
import { BASE_URL, MESSAGE_EXTRA, SIGNATURE, TURNS, WEATHER, WHOLE, blocks, run } from "./checks.mjs";

const client = new Anthropic({ baseURL: BASE_URL.replace(/\/v1$/, ""), apiKey: "none", maxRetries: 0 });
const PIECES = { text_delta: "text", thinking_delta: "thinking", input_json_delta: "partial_json" };

function question(model, turn, more = {}) {
  const { messages } = turn;
  const tools = turn.tools.map(({ function: { name, description, parameters } }) => ({ name, description, input_schema: parameters }));
  return { model, messages: blocks(messages), ...(tools.length && { tools }), max_tokens: 120, ...MESSAGE_EXTRA, ...more };
}

function answered({ content, stop_reason: reason, usage }) {
  const of = (type) => content.filter((block) => block.type === type);
  assert.ok(of("thinking").every((block) => block.signature.startsWith(SIGNATURE)));
  return {
    content: of("text").map(({ text }) => text).join(""),
    thought: of("thinking").map(({ thinking }) => thinking).join(""),
    calls: of("tool_use").map(({ name, input }) => [name, input]),
    finish: { end_turn: "stop", tool_use: "tool_calls" }[reason],
    usage: [usage.input_tokens + usage.cache_read_input_tokens, usage.output_tokens],
  };
}

async function create(model, turn) {
  return answered(await client.messages.create(question(model, turn)));
}

// The deltas make up the message of the helper.
async function streamHelper(model, turn) {
  const pieces = { text: "", thinking: "", partial_json: "" };
  const stream = client.messages.stream(question(model, turn));
  stream.on("streamEvent", ({ type, delta }) => {
    const name = type === "content_block_delta" && PIECES[delta.type];
    if (name) pieces[name] += delta[name];
  });
  const answer = answered(await stream.finalMessage());
  const given = answer.calls.map(([, input]) => JSON.stringify(input)).join("");
  assert.deepEqual(
    [pieces.text, pieces.thinking, pieces.partial_json.replaceAll(/\s/g, "")],
    [answer.content, answer.thought, given.replaceAll(/\s/g, "")],
  );
  return answer;
}

// With the thought that led to the call, by its signature alone.
async function aMessageGoesOnWithItsOwnBlocks(model) {
  const request = question(model, TURNS.think_then_call, { thinking: { type: "adaptive", display: "omitted" } });
  const first = await client.messages.create(request);
  const [thought, call] = first.content;
  assert.equal(thought.thinking, "");
  assert.ok(thought.signature.startsWith(SIGNATURE));
  const result = { type: "tool_result", tool_use_id: call.id, content: WEATHER };
  const more = [
    { role: "assistant", content: first.content },
    { role: "user", content: [result] },
  ];
  const after = await client.messages.create({ ...request, messages: [...request.messages, ...more] });
  assert.equal(answered(after).content, TURNS.follow_up.content);
}

async function theRunnerCallsATool(model) {
  const turn = TURNS.single;
  const called = [];
  const tools = question(model, turn).tools.map(({ name, description, input_schema: inputSchema }) =>
    betaTool({ name, description, inputSchema, run: (input) => (called.push([name, input]), WEATHER) }),
  );
  const last = await client.beta.messages.toolRunner({ ...question(model, turn), tools }).runUntilDone();
  assert.deepEqual(called, turn.calls);
  assert.equal(last.content.at(-1).text, TURNS.follow_up.content);
}

async function aMessageIsParsed(model) {
  const schema = { type: "object", properties: { result: { type: "integer" } }, required: ["result"], additionalProperties: false };
  const messages = [{ role: "user", content: "What is 2 + 3? Respond with the result." }];
  const format = jsonSchemaOutputFormat(schema);
  const parsed = await client.messages.parse({ model, messages, max_tokens: 60, output_config: { format }, ...MESSAGE_EXTRA });
  assert.equal(typeof parsed.parsed_output.result, "number");
}

async function tokensAreCounted(model) {
  const { messages, tools } = question(model, TURNS.single);
  const { input_tokens: counted } = await client.messages.countTokens({ model, messages, tools });
  assert.ok(counted > 100);
}

async function modelsAreListed(model) {
  const ids = [];
  for await (const { id } of client.models.list({ limit: 1 })) ids.push(id);
  assert.ok(ids.includes(model));
  assert.equal((await client.models.retrieve(model)).type, "model");
}

const ways = [
  [create, WHOLE],
  [streamHelper, ["think", "parallel"]],
];
await run(`anthropic-node ${VERSION}`, ways, [
  aMessageGoesOnWithItsOwnBlocks,
  theRunnerCallsATool,
  aMessageIsParsed,
  tokensAreCounted,
  modelsAreListed,
]);
